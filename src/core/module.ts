import { existsSync } from 'node:fs'
import { register } from 'node:module'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Mismatch, messageOf } from './errors.ts'

const fromSources = import.meta.url.endsWith('.ts')
/** Node from 22.18 on leaves types out by itself; what is more than types it refuses. */
const leavesTypesOut = Boolean((process.features as { typescript?: unknown }).typescript)

let loader: Promise<void> | undefined

/** tsx, when it is installed. Its hooks are those of the whole thread: what the module imports of this package is the code that runs. */
async function startTypeScript(): Promise<void> {
  process.env.TSX_DISABLE_CACHE = '1' // its cache is in the temporary folder, where others may have put code
  const tsx = await import('tsx/esm/api').catch(() => null)
  if (tsx) {
    tsx.register()
    register(new URL('../../bin/typescript-modules.mjs', import.meta.url))
  } else if (!leavesTypesOut)
    throw new Error(
      'this Node cannot run TypeScript: install tsx, use Node 22.18 or newer, or compile the module to .mjs',
    )
}

async function importFile(path: string): Promise<Record<string, unknown>> {
  if (/\.[mc]?tsx?$/.test(path) && !fromSources) {
    loader ??= startTypeScript()
    await loader
  }
  return await import(pathToFileURL(path).href)
}

/** The object a user's module exports under a name (or as default). `hint` shows what such a line looks like. */
export async function loadExport(path: string, name: string, hint: string): Promise<Record<string, unknown>> {
  const full = resolve(path)
  const field = `${name} module`
  if (!existsSync(full)) throw new Mismatch({ where: path, field, expected: 'a file', got: 'nothing there' })
  let module: Record<string, unknown>
  try {
    module = await importFile(full)
  } catch (error) {
    const beyond = (error as { code?: unknown }).code === 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX'
    const hint = beyond ? 'install tsx beside the package: npm install tsx' : undefined
    const got = messageOf(error)
    throw new Mismatch({ where: path, field, expected: 'a module that loads', got, hint }, { cause: error })
  }
  const value = module[name] ?? module.default
  if (typeof value === 'object' && value !== null) return value as Record<string, unknown>
  throw new Mismatch({ where: path, field: 'export', expected: `\`${name}\``, got: Object.keys(module), hint })
}
