// What the pages quote is what the program says: every quoted error or warning has a text in src that makes it.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { fileURLToPath } from 'node:url'
import { fileOf, tableRows } from '../../tools/lib/binary-files.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const read = (path: string) => readFileSync(join(root, path), 'utf8')

function sources(): string[] {
  const paths = readdirSync(join(root, 'src'), { recursive: true }) as string[]
  return paths.filter((path) => path.endsWith('.ts') && !path.endsWith('.test.ts')).map((path) => read(`src/${path}`))
}

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')

/** The end of `${...}` that begins at `at`; braces inside are counted. */
function endOfHole(code: string, at: number): number {
  let depth = 0
  for (let i = at; i < code.length; i++) {
    if (code[i] === '{') depth++
    else if (code[i] === '}' && --depth === 0) return i
  }
  return code.length
}

/** A template literal that begins after `at` as a pattern: holes match anything. */
function templateAt(code: string, at: number): { pattern: string; letters: number } {
  let pattern = ''
  let letters = 0
  for (let i = at; i < code.length && code[i] !== '`'; i++) {
    if (code[i] === '$' && code[i + 1] === '{') {
      pattern += '.+?'
      i = endOfHole(code, i + 1)
      continue
    }
    if (code[i] === '\\') i++
    pattern += escaped(code[i]!)
    if (/[a-z]/i.test(code[i]!)) letters++
  }
  return { pattern, letters }
}

/** Every text the sources can print, as patterns of whole texts. */
function textsOf(code: string): RegExp[] {
  const bare = code.replace(/(^|\s)\/\/.*$/gm, '').replace(/\/\*\*[\s\S]*?\*\//g, '')
  const single = [...bare.matchAll(/'((?:[^'\\\n]|\\.)+)'/g), ...bare.matchAll(/"((?:[^"\\\n]|\\.)+)"/g)]
  const plain = single.map((m) => new RegExp(`^${escaped(m[1]!.replace(/\\(.)/g, '$1'))}$`))
  const templates = [...bare.matchAll(/`/g)].map((m) => templateAt(bare, m.index + 1)).filter((t) => t.letters >= 3)
  return [...plain, ...templates.map(({ pattern }) => new RegExp(`^${pattern}$`, 's'))]
}

const known = sources().flatMap(textsOf)
const isKnown = (text: string) => known.some((pattern) => pattern.test(text))
const isValue = (text: string) => /^(\.\.\.|[a-z0-9_]+(, [a-z0-9_]+)*)$/.test(text)

/** Parts of `where: field: expected E, got G. hint` that no text of the sources makes. */
function unknownParts(message: string): string[] {
  const parts = /: expected (.+?), got (.+?)(?:\. (.+))?$/s.exec(message)
  if (!parts) return isKnown(message) ? [] : [message]
  const [, expected, got, hint] = parts
  const missing = [expected!, hint ?? '...'].filter((text) => text !== '...' && !isKnown(text)) // a page may shorten
  return isValue(got!) || isKnown(got!) ? missing : [...missing, got!]
}

const pages = ['README.md', ...readdirSync(join(root, 'docs')).map((name) => `docs/${name}`)].filter((path) =>
  path.endsWith('.md'),
)

function quotedIn(page: string): string[] {
  const text = read(page)
  const lines = [...text.matchAll(/^(?:error|warn): (.+)$/gm)].map((m) => m[1]!)
  const inline = [...text.matchAll(/`([^`\n]+: expected [^`\n]+, got [^`\n]+)`/g)].map((m) => m[1]!)
  return [...lines, ...inline]
}

test('every error and warning that a page quotes is one the program can print', () => {
  const quoted = pages.flatMap((page) => quotedIn(page).map((message) => ({ page, message })))
  assert.ok(quoted.length >= 8)
  const wrong = quoted.map((q) => ({ ...q, unknown: unknownParts(q.message) })).filter((q) => q.unknown.length > 0)
  assert.deepEqual(wrong, [])
})

test('a quoted message in other words than the program’s is found', () => {
  const message =
    'train: lora: expected a gradient from the enabled losses, got exactly 0 in the second step. try again'
  assert.deepEqual(unknownParts(message), ['try again', 'exactly 0 in the second step'])
})

test('the table of binary files has every one that is shipped, with its size and hash', () => {
  const rows = tableRows(read('dev/supply-chain.md'))
  const shipped = (readdirSync(join(root, 'assets'), { recursive: true }) as string[]).map((path) => `assets/${path}`)
  const binary = shipped.filter((path) => /\.(safetensors|br|bin|pt|png|jpe?g|node|wasm)$/.test(path))
  assert.deepEqual(rows.map((row) => row.file).sort(), binary.sort())
  for (const { file, bytes, hash, madeBy } of rows) {
    assert.deepEqual({ bytes, hash }, fileOf(join(root, file)), `${file}: node tools/supply-chain.mjs --write`)
    assert.match(madeBy, /^the same command|^`node --import tsx (?:scripts|tools)\/[\w-]+\.ts/)
  }
})

test('every locked package has a hash, comes from the registry, and none runs a script when it is installed', () => {
  const { packages } = JSON.parse(read('package-lock.json')) as { packages: Record<string, Record<string, unknown>> }
  const others = Object.entries(packages).filter(([path]) => path !== '')
  const odd = others.filter(([, p]) => p['link'] || !String(p['integrity']).startsWith('sha512-'))
  assert.deepEqual(odd, [])
  const scripted = others.filter(([, p]) => p['hasInstallScript']).map(([path]) => path)
  assert.deepEqual(scripted, ['node_modules/esbuild'], 'works without its script; look at any other')
  const installs = [...read('scripts/lib/packages.mjs').matchAll(/npm\(\['(?:ci|install)'.*?\]\)/g)].map(
    ([call]) => call,
  )
  assert.ok(installs.length > 0, 'set-up installs')
  for (const call of installs) assert.match(call, /--ignore-scripts/)
})
