// Bugs to inject, one per line of table.tsv: file, text (its first occurrence is replaced), replacement, test file, names of tests
// (optional), reason as `area: what goes wrong`. In a cell \n is a newline, \t a tab and \\ a backslash.
import { readFileSync } from 'node:fs'

const escapes = { n: '\n', t: '\t', '\\': '\\' }
const decode = (cell) => cell.replace(/\\([nt\\])/g, (_, letter) => escapes[letter])
const lines = readFileSync(new URL('table.tsv', import.meta.url), 'utf8')
  .trimEnd()
  .split('\n')

export const mutants = lines.slice(1).map((line) => {
  const [file, text, replacement, test, names, reason] = line.split('\t').map(decode)
  return { file, text, replacement, test, names: names || undefined, reason }
})
