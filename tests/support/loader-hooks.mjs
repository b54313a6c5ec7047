// Hooks of loader.mjs, in the thread that Node keeps for them.
import { readFileSync } from 'node:fs'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { compiledCode, root } from './loader.mjs'

const base = pathToFileURL(root).href
const loader = new URL('./preload.mjs', import.meta.url).href
const tsx = /^tsx(?:\/esm\/api)?$|\/node_modules\/tsx\/dist\/(?:loader|esm\/api\/index)\.mjs$/
const ownPackage = /^roundtrip-rl(?:\/(\w+))?$/ // `paths` of tsconfig.json

export function resolve(specifier, context, next) {
  if (specifier.startsWith('node:')) return { url: specifier, format: 'builtin', shortCircuit: true }
  if (/^\.{1,2}\/.*\.ts$/.test(specifier))
    return { url: new URL(specifier, context.parentURL).href, format: 'module', shortCircuit: true }
  if (tsx.test(specifier)) return { url: loader, format: 'module', shortCircuit: true }
  const own = ownPackage.exec(specifier)
  if (own) return { url: `${base}src/public/${own[1] ?? 'index'}.ts`, format: 'module', shortCircuit: true }
  return next(specifier, context)
}

export async function load(url, context, next) {
  if (!url.endsWith('.ts') || !url.startsWith('file:')) return next(url, context)
  const source = await compiledCode(readFileSync(fileURLToPath(url), 'utf8'))
  return { format: 'module', source, shortCircuit: true }
}
