#!/usr/bin/env node
// From a clone the TypeScript sources run as they are; an installed package carries compiled JavaScript.
import { existsSync } from 'node:fs'

const source = new URL('../src/cli/main.ts', import.meta.url)
if (existsSync(source)) {
  const { register } = await import('tsx/esm/api')
  register()
  await import(source.href)
} else {
  await import('../dist/src/cli/main.js')
}
