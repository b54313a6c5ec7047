import { join } from 'node:path'
import { type CheckRow, Mismatch } from '../core/index.ts'
import { loadTokenizer, type Tokenizer } from '../text/index.ts'
import { compareFields } from './compare.ts'
import { readGolden } from './golden-tensors.ts'

interface TokenizerCase {
  text: string
  ids: number[]
  decoded: string
  decoded_skip: string
}

/** Recomputes the tokenizer cases of a golden folder (tokenizer.json, golden.json `tokenizer_cases`): one row a case. */
export function verifyTokenizer(dir: string): CheckRow[] {
  const path = join(dir, 'golden.json')
  const { tokenizer_cases } = readGolden<{ tokenizer_cases?: TokenizerCase[] }>(dir)
  if (!tokenizer_cases?.length) {
    throw new Mismatch({ where: path, field: 'tokenizer_cases', expected: 'a list of cases', got: tokenizer_cases })
  }
  const tokenizer = loadTokenizer(dir)
  return tokenizer_cases.map((wanted) => checkCase(tokenizer, wanted))
}

function checkCase(tokenizer: Tokenizer, { text, ids, decoded, decoded_skip }: TokenizerCase): CheckRow {
  const withoutSpecials = tokenizer.decode(ids, { skipSpecial: true })
  return compareFields(
    `tokenizer ${JSON.stringify(text)}`,
    { ids: [...tokenizer.encode(text)], text: tokenizer.decode(ids), 'text without specials': withoutSpecials },
    { ids, text: decoded, 'text without specials': decoded_skip },
  )
}
