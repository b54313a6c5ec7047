import { Mismatch } from '../core/index.ts'
import type { Tokenizer } from './base-tokenizer.ts'
import type { ChatTemplate } from './templates.ts'

/** An answer with what ends it: the template's suffix, and EOS unless the suffix stands for it. `words`: none of it becomes a special token. */
export function encodeAnswer(
  answer: string,
  template: Pick<ChatTemplate, 'name' | 'suffix' | 'suffixAsEos'>,
  tokenizer: Tokenizer,
  { words = false }: { words?: boolean } = {},
): Int32Array {
  const plain: [number, number][] = words ? [[0, answer.length]] : []
  const ids = tokenizer.encode(answer + template.suffix, { addSpecial: false, plain })
  return template.suffixAsEos ? ids : Int32Array.of(...ids, requireEos(tokenizer, template))
}

function requireEos(tokenizer: Tokenizer, template: Pick<ChatTemplate, 'name'>): number {
  if (tokenizer.eosId !== undefined) return tokenizer.eosId
  const expected = `an end token, which ${template.name} puts after every answer`
  throw new Mismatch({ where: 'tokenizer', field: 'eos_token', expected, got: 'none' })
}
