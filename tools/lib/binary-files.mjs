// The table of binary files in dev/supply-chain.md.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'

/** @param {string} path */
export function fileOf(path) {
  const bytes = readFileSync(path)
  return { bytes: bytes.length, hash: createHash('sha256').update(bytes).digest('hex') }
}

/** @param {string} page */
export function tableRows(page) {
  const [, table = ''] = page.split('<!-- the table of binary files -->')
  const lines = (table.split('<!-- end of the table -->')[0] ?? '').split('\n')
  return lines.flatMap((line) => {
    const [, file = '', bytes = '', hash = '', madeBy = ''] = line.split('|').map((cell) => cell.trim())
    return file.startsWith('assets/') ? [{ line, file, bytes: Number(bytes), hash, madeBy }] : []
  })
}
