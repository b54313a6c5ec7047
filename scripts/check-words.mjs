// Checks that pages and code use the words of PyTorch's and TRL's documentation. Reports each word of the table below and what to write.
// Pages: code blocks, inline code and link targets are skipped. Code: comments, strings with a space, and some identifiers are checked.
// `check-words.mjs [FOLDER [SUBFOLDERS]]` checks another tree, or only some folders of code.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { allowed } from './lib/allowed-words.mjs'

/** Pages, and folders of pages (not their subfolders). */
const pages = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'docs']
/** Folders of code, with their subfolders. */
const folders = ['bench', 'examples', 'native', 'scripts', 'src', 'tests', 'tools']
/** Written by generators, or the word lists themselves. */
const skipped =
  /^docs\/(?:reference|reference-advanced|prototype-flags)\.md$|\.gen\.ts$|fixtures\/|words\.(?:mjs|test\.ts)$/

/** A word in the wrong sense -> what to write instead. */
const words = [
  [/(?<!\b(?:leav|left)[^.;]{0,60})\bbehind\b/i, 'after'],
  [/\b(?:told|tells?|telling)\b(?! (?:\w+ ){0,2}(?:apart|from))/i, 'reported, logged, shown, printed'],
  [/\bin words\b|\bwithout a word\b/i, 'with a clear message'],
  [/\bof (?:ours|its own|their own|your own)\b/i, 'custom, our own, its'],
  [/(?<![\w-])figures?\b/i, 'metrics'],
  [/\bgo(?:es|ing)? on\b/i, 'continues, resumes'],
  [/\blooked (?:at|through)\b/i, 'checked, read'],
  [/\bstay(?:s|ed)? away\b|\b(?:is|are) gone\b|\bis away\b/i, 'is unreachable, does not respond'],
  [/\bheld\b(?!-out| out)/i, 'clamped, kept'],
  [/(?<!\bhand-|[-.])\bmade\b(?! of| up)/i, 'created, computed, written'],
  [/\bstands?\b(?! for)/i, 'is, is located'],
  [/\bat hand\b/i, 'current, available'],
  [
    /(?:^|[.;:] )Where (?!to\b)|\bwhere (?:none|nothing|something|several|there (?:is|are)|it is (?:null|missing|absent))\b/,
    'if, when',
  ],
  [/\bwhere (?:our|kernels|no|both|exact|the (?:file|table|right|variable|hidden))\b/, 'if, when'],
  [/(?<!\bthere )\b(?:is|are) no (?!longer|more)[a-z]/i, 'is not a'],
  [/\b(?:may ask|asks|needs) of\b/i, 'requires'],
  [/\b(?:doors?|halls?|house)\b/i, 'entry point, folder'],
  [/(?<!\bmodel |[-.])\bcards?\b|\bthe memory's speed\b/i, 'GPU, memory bandwidth'],
  [/\bplanted\b/i, 'injected'],
  [/\bmend(?:s|ed|ing)?\b/i, 'fix'],
  [/\bthe notice says\b|\ba word about\b|\bnotices?\b/i, 'warning, note'],
  [/\bby hand\b/i, 'manually, custom'],
  [/\b(?:lives|dies)\b/i, 'is in; is removed, fails'],
]
/** Identifiers, also as a part of a longer one. */
const names = [
  [/\b(?:told|heard|tell[A-Z]\w*|\w*(?:Told|Heard))\b/, 'reported, received'],
  [/\b(?:k?M|m)ost(?!Frequent)[A-Z]\w*/, 'max...'],
  [/\bfigures\b|\w*Figures?\b/, 'metrics'],
]

const root = resolve(process.argv[2] ?? join(dirname(fileURLToPath(import.meta.url)), '..'))

function filesOf(path, ending, isDeep) {
  const at = join(root, path)
  if (!existsSync(at)) return []
  if (!statSync(at).isDirectory()) return [path]
  return readdirSync(at, { recursive: isDeep })
    .map((name) => `${path}/${name.replaceAll('\\', '/')}`)
    .filter((file) => ending.test(file) && !skipped.test(file))
}

const blank = (text) => text.replace(/[^\n]/g, ' ')
/** The text a reader reads as sentences; lines keep their numbers. */
const prose = (text) =>
  text
    .replace(/^```[\s\S]*?^```/gm, blank)
    .replace(/`[^`\n]*`/g, '`code`')
    .replace(/\]\([^)\n]*\)/g, ']')

const commentsAndStrings = /\/\/[^\n]*|\/\*[\s\S]*?\*\/|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`/g
const commentText = (text) => text.replace(/^\/\/+|^[ \t]*\*(?!\/)|^\/\*+/gm, blank).replace(/`[^`\n]*`/g, '`code`')
const stringText = (text) => (/\s/.test(text) ? text.replace(/\$\{[^{}]*\}|<[^<>]*>/g, blank) : blank(text))
const textOf = (part) => (part.startsWith('/') ? commentText(part) : stringText(part))
/** Comments and strings of a program, at their places; what is between them ends a sentence. */
function sentencesOf(text) {
  const cover = (code) => code.replace(/\S/g, '|')
  let [out, end] = ['', 0]
  for (const { 0: part, index } of text.replace(/\bclass="[^"]*"/g, blank).matchAll(commentsAndStrings)) {
    out += cover(text.slice(end, index)) + textOf(part)
    end = index + part.length
  }
  return out + cover(text.slice(end))
}
const identifiersOf = (text) => text.replace(commentsAndStrings, blank)

const isAllowed = (file, line) => allowed.some((entry) => entry.file === file && line.includes(entry.text))
/** Two words may have a line break between them. */
const acrossLines = (pattern) => new RegExp(pattern.source.replaceAll(' ', '\\s+'), `${pattern.flags}gm`)

const matchesOf = (text, table) =>
  table.flatMap(([pattern, instead]) =>
    [...text.matchAll(acrossLines(pattern))].map((match) => {
      const start = match.index + match[0].search(/\S/)
      return { row: text.slice(0, start).split('\n').length, word: match[0].trim().replace(/\s+/g, ' '), instead }
    }),
  )

function problemsOf(file, find) {
  const text = readFileSync(join(root, file), 'utf8')
  const lines = text.split('\n')
  return find(text)
    .filter(({ row }) => !isAllowed(file, lines[row - 1]))
    .sort((x, y) => x.row - y.row)
    .map(({ row, word, instead }) => `${file}:${row}: "${word}": write ${instead}`)
}

const inPage = (text) => matchesOf(prose(text), words)
const inCode = (text) => [...matchesOf(sentencesOf(text), words), ...matchesOf(identifiersOf(text), names)]
const problems = [
  ...pages.flatMap((path) => filesOf(path, /\.md$/, false)).flatMap((file) => problemsOf(file, inPage)),
  ...(process.argv[3]?.split(',') ?? folders)
    .flatMap((path) => filesOf(path, /\.(?:[cm]?tsx?|mjs|cc|h|cu)$/, true))
    .flatMap((file) => problemsOf(file, inCode)),
]
for (const problem of problems) console.error(problem)
if (problems.length > 0) process.exit(1)
console.log('words: plain')
