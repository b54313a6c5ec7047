// For `npm test`: TypeScript of this repository without tsx, which takes half of the time of a short test. `npm test` compiles all files
// once and sets NODE_OPTIONS, so that every process of a test loads this first. Hooks then give the compiled file for a source, and this
// module for tsx. A file is stored under the hash of its source: what is not compiled yet, or was changed, is compiled when it is loaded.
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { register as registerHooks, SourceMap } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('../..', import.meta.url))
const compiledFolder = join(root, '.cache/tests')
const tsconfigRaw = { compilerOptions: { verbatimModuleSyntax: true } }
const options = { loader: 'ts', format: 'esm', target: 'node20.10', sourcemap: 'external', tsconfigRaw }
const version = createHash('sha1')
  .update(JSON.stringify(options))
  .update(readFileSync(join(root, 'package.json')))

const addressOf = (source) => join(compiledFolder, version.copy().update(source).digest('hex'))

function store(address, { code, map }) {
  mkdirSync(compiledFolder, { recursive: true })
  const part = `${address}.${process.pid}` // several processes may compile the same file
  for (const [ending, text] of Object.entries({ '.map': map, '.js': code })) {
    writeFileSync(part, text)
    renameSync(part, address + ending)
  }
}

/** The JavaScript of a source. */
export async function compiledCode(source) {
  const path = `${addressOf(source)}.js`
  if (!existsSync(path)) store(addressOf(source), (await import('esbuild')).transformSync(source, options))
  return readFileSync(path, 'utf8')
}

/** Compiles all TypeScript files of some folders before processes need them, and removes what is of none of them. */
export async function compileAll(folders) {
  const { transform } = await import('esbuild')
  const ofFolder = (folder) => readdirSync(join(root, folder), { recursive: true }).map((name) => join(folder, name))
  const paths = folders.flatMap(ofFolder).filter((path) => /(?<!\.d)\.ts$/.test(path))
  const sources = new Map()
  for (const source of paths.map((path) => readFileSync(join(root, path), 'utf8')))
    sources.set(addressOf(source), source)
  const isWanted = (name) => sources.has(join(compiledFolder, name.split('.')[0]))
  const names = existsSync(compiledFolder) ? readdirSync(compiledFolder) : []
  for (const name of names.filter((one) => !isWanted(one))) rmSync(join(compiledFolder, name), { force: true })
  const missing = [...sources].filter(([address]) => !existsSync(`${address}.js`))
  await Promise.all(missing.map(async ([address, source]) => store(address, await transform(source, options))))
}

const used = () => process.env.NODE_OPTIONS?.includes(new URL('./preload.mjs', import.meta.url).href)

/** Stacks of tests that `npm test` runs name the lines of compiled files; the result names those of the sources. */
export function withSourceLines(stack) {
  if (!used()) return stack
  return stack.replace(/(file:\/\/[^\s:]+\.ts):(\d+):(\d+)/g, (whole, url, line, column) => {
    const path = fileURLToPath(url)
    const map = existsSync(path) && `${addressOf(readFileSync(path, 'utf8'))}.map`
    if (!map || !existsSync(map)) return whole
    const entry = new SourceMap(JSON.parse(readFileSync(map, 'utf8'))).findEntry(Number(line) - 1, Number(column) - 1)
    return entry.originalLine === undefined ? whole : `${url}:${entry.originalLine + 1}:${entry.originalColumn + 1}`
  })
}

let registered = false

/** Takes the place of `register` of tsx, in this thread. */
export function register() {
  if (!registered) registerHooks('./loader-hooks.mjs', import.meta.url)
  registered = true
}
