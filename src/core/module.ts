import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Mismatch, messageOf } from './errors.ts'

/** Node runs TypeScript by itself from 22.18; before that tsx does it, when it is installed. */
async function importFile(path: string): Promise<Record<string, unknown>> {
  const url = pathToFileURL(path).href
  try {
    return await import(url)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_UNKNOWN_FILE_EXTENSION') throw error
    const { tsImport } = await import('tsx/esm/api').catch(() => {
      throw new Error(
        'this Node cannot run TypeScript: install tsx, use Node 22.18 or newer, or compile the module to .mjs',
      )
    })
    return await tsImport(url, import.meta.url)
  }
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
    throw new Mismatch({ where: path, field, expected: 'a module that loads', got: messageOf(error) }, { cause: error })
  }
  const value = module[name] ?? module.default
  if (typeof value === 'object' && value !== null) return value as Record<string, unknown>
  throw new Mismatch({ where: path, field: 'export', expected: `\`${name}\``, got: Object.keys(module), hint })
}
