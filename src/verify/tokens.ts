import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type CheckRow, Mismatch } from '../core/index.ts'
import { loadTokenizer, type Tokenizer } from '../text/index.ts'

interface TokenizerCase {
  text: string
  ids: number[]
  decoded: string
  decoded_skip: string
}

/** Recomputes the tokenizer cases of a golden folder (tokenizer.json, golden.json `tokenizer_cases`): one row a case. */
export function verifyTokenizer(dir: string): CheckRow[] {
  const path = join(dir, 'golden.json')
  const { tokenizer_cases } = JSON.parse(readFileSync(path, 'utf8')) as { tokenizer_cases?: TokenizerCase[] }
  if (!tokenizer_cases?.length) {
    throw new Mismatch({ where: path, field: 'tokenizer_cases', expected: 'a list of cases', got: tokenizer_cases })
  }
  const tokenizer = loadTokenizer(dir)
  return tokenizer_cases.map((wanted) => checkCase(tokenizer, wanted))
}

function checkCase(tokenizer: Tokenizer, wanted: TokenizerCase): CheckRow {
  const ids = [...tokenizer.encode(wanted.text)]
  const differences = [
    difference('ids', ids, wanted.ids),
    difference('text', tokenizer.decode(wanted.ids), wanted.decoded),
    difference('text without specials', tokenizer.decode(wanted.ids, { skipSpecial: true }), wanted.decoded_skip),
  ].filter((d) => d !== undefined)
  return {
    name: `tokenizer ${JSON.stringify(wanted.text)}`,
    abs: Number.NaN,
    rel: Number.NaN,
    limit: 'equal',
    pass: differences.length === 0,
    ...(differences.length > 0 && { detail: differences.join('; ') }),
  }
}

function difference(what: string, got: unknown, expected: unknown): string | undefined {
  const [a, b] = [JSON.stringify(got), JSON.stringify(expected)]
  return a === b ? undefined : `${what}: expected ${b}, got ${a}`
}
