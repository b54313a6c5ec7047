#!/usr/bin/env node
// From a clone the TypeScript sources run as they are; an installed package has them compiled in dist/, an offline bundle in place.
import { existsSync } from 'node:fs'
import { requireOpenFiles } from './open-files.mjs'

const [source, compiled, inPlace] = ['../src/cli/main.ts', '../dist/cli/main.js', '../src/cli/main.js'].map(
  (path) => new URL(path, import.meta.url),
)
requireOpenFiles()
if (existsSync(source)) {
  const { useOwnCache } = await import('./own-cache.mjs')
  useOwnCache()
  const { register } = await import('tsx/esm/api')
  register()
  const { register: addHooks } = await import('node:module')
  addHooks(new URL('./typescript-modules.mjs', import.meta.url)) // at the start: beside the engine thread it would wait for ever
  await import(source.href)
} else {
  await import((existsSync(compiled) ? compiled : inPlace).href)
}
