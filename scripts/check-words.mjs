// The pages use the words of PyTorch's and TRL's documentation: a word of the table below fails, with the plain word to write.
// Code blocks, inline code and link targets are left out: they quote the program. `check-words.mjs FOLDER` checks another tree.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { allowed } from './lib/allowed-words.mjs'

/** Files and folders (not their subfolders) to check. */
const folders = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'docs']
/** Written by generators; their text comes from src. */
const generated = ['docs/reference.md', 'docs/reference-advanced.md', 'docs/prototype-flags.md']

/** A word in the wrong sense -> what to write instead. */
const words = [
  [/\bbehind\b/i, 'after'],
  [/\b(?:told|tells?|telling)\b/i, 'reported, logged, shown, printed'],
  [/\bin words\b|\bwithout a word\b/i, 'with a clear message'],
  [/\bof (?:ours|its own|their own|your own)\b/i, 'custom, our own, its'],
  [/\bfigures?\b/i, 'metrics'],
  [/\bgo(?:es|ing)? on\b/i, 'continues, resumes'],
  [/\blooked (?:at|through)\b/i, 'checked, read'],
  [/\bstay(?:s|ed)? away\b|\b(?:is|are) gone\b|\bis away\b/i, 'is unreachable, does not respond'],
  [/\bheld\b(?!-out| out)/i, 'clamped, kept'],
  [/\bmade\b/i, 'created, computed, written'],
  [/\bstands?\b/i, 'is, is located'],
  [/\bat hand\b/i, 'current, available'],
  [
    /(?:^|[.;:] )Where (?!to\b)|\bwhere (?:none|nothing|something|several|there (?:is|are)|it is (?:null|missing|absent))\b/,
    'if, when',
  ],
  [/\bwhere (?:our|kernels|no|both|they are|exact|the (?:file|table|right|variable|hidden))\b/, 'if, when'],
  [/(?<!\bthere )\b(?:is|are) no [a-z]/i, 'is not a'],
  [/\b(?:may ask|asks|needs) of\b/i, 'requires'],
  [/\b(?:doors?|halls?|house)\b/i, 'entry point, folder'],
  [/(?<!\bmodel )\bcards?\b|\bthe memory's speed\b/i, 'GPU, memory bandwidth'],
  [/\bplanted\b/i, 'injected'],
  [/\bmend(?:s|ed|ing)?\b/i, 'fix'],
  [/\bthe notice says\b|\ba word about\b|\bnotices?\b/i, 'warning, note'],
  [/\bby hand\b/i, 'manually, custom'],
  [/\b(?:lives|dies)\b/i, 'is in; is removed, fails'],
]

const root = resolve(process.argv[2] ?? join(dirname(fileURLToPath(import.meta.url)), '..'))

function filesOf(path) {
  const at = join(root, path)
  if (!existsSync(at)) return []
  if (!statSync(at).isDirectory()) return [path]
  return readdirSync(at)
    .filter((name) => name.endsWith('.md'))
    .map((name) => `${path}/${name}`)
}

const blank = (text) => text.replace(/[^\n]/g, ' ')
/** The text a reader reads as sentences; lines keep their numbers. */
const prose = (text) =>
  text
    .replace(/^```[\s\S]*?^```/gm, blank)
    .replace(/`[^`\n]*`/g, '`code`')
    .replace(/\]\([^)\n]*\)/g, ']')

const isAllowed = (file, line) => allowed.some((entry) => entry.file === file && line.includes(entry.text))
/** Two words may have a line break between them. */
const acrossLines = (pattern) => new RegExp(pattern.source.replaceAll(' ', '\\s+'), `${pattern.flags}gm`)

function problemsOf(file) {
  const text = readFileSync(join(root, file), 'utf8')
  const lines = text.split('\n')
  const sentences = prose(text)
  const found = words.flatMap(([pattern, instead]) =>
    [...sentences.matchAll(acrossLines(pattern))].map((match) => {
      const start = match.index + match[0].search(/\S/)
      return { row: sentences.slice(0, start).split('\n').length, word: match[0].trim().replace(/\s+/g, ' '), instead }
    }),
  )
  return found
    .filter(({ row }) => !isAllowed(file, lines[row - 1]))
    .sort((x, y) => x.row - y.row)
    .map(({ row, word, instead }) => `${file}:${row}: "${word}": write ${instead}`)
}

const problems = folders
  .flatMap(filesOf)
  .filter((file) => !generated.includes(file))
  .flatMap(problemsOf)
for (const problem of problems) console.error(problem)
if (problems.length > 0) process.exit(1)
console.log('words: plain')
