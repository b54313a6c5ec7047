// The Jinja chat template that a model folder brings.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { readJsonObject, readTextFile } from '../core/index.ts'

export interface FolderTemplate {
  file: string
  text: string
}

/** From chat_template.jinja, chat_template.json or tokenizer_config.json, in this order; null if the folder has none. */
export function folderTemplate(dir: string): FolderTemplate | null {
  const plain = join(dir, 'chat_template.jinja')
  if (existsSync(plain)) return { file: 'chat_template.jinja', text: readTextFile(plain) }
  for (const file of ['chat_template.json', 'tokenizer_config.json']) {
    const path = join(dir, file)
    const text = existsSync(path) ? defaultOf(readJsonObject(path).chat_template) : undefined
    if (typeof text === 'string') return { file, text }
  }
  return null
}

/** Several templates are a list of names and texts. */
function defaultOf(value: unknown): unknown {
  if (!Array.isArray(value)) return value
  return (value as { name?: unknown; template?: unknown }[]).find((one) => one?.name === 'default')?.template
}
