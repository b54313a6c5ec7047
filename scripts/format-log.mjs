// `node scripts/format-log.mjs`: docs/log.md with a heading for each entry and lines of at most 118 columns. Entries may be written as
// `**2026-11-16: title.** text`; code blocks, tables and lists stay as they are.
import { readFileSync, writeFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'

const width = 118
const opening = /^\*\*(\d{4}-\d\d-\d\d): (.*?)\.?\*\*\s*/s

function wrap(text) {
  const lines = ['']
  for (const word of text.split(/\s+/)) {
    const now = lines.at(-1)
    if (now !== '' && now.length + 1 + word.length > width) lines.push(word)
    else lines[lines.length - 1] = now === '' ? word : `${now} ${word}`
  }
  return lines.join('\n')
}

const isPlain = (block) => !/^(#|```|\||[-*] |\d+\. )/.test(block)

export function formatLog(page) {
  const blocks = page.trim().split(/\n\n+(?=(?:[^`]*```[^`]*```)*(?![^`]*```))/)
  return `${blocks
    .flatMap((block) => {
      const [all, date, title] = opening.exec(block) ?? []
      if (all === undefined) return [isPlain(block) ? wrap(block) : block]
      return [`## ${date}: ${title.replace(/\s+/g, ' ')}`, wrap(block.slice(all.length))]
    })
    .join('\n\n')}\n`
}

if (process.argv[1] && pathToFileURL(process.argv[1]).href === import.meta.url) {
  const path = new URL('../docs/log.md', import.meta.url)
  writeFileSync(path, formatLog(readFileSync(path, 'utf8')))
}
