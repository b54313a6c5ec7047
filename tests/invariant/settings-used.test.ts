import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { runTable } from '../../src/cli/settings.ts'

const src = join(import.meta.dirname, '../../src')

test('every setting is read by code outside the schemas: none is without effect', () => {
  const code = (readdirSync(src, { recursive: true }) as string[])
    .filter(
      (path) => path.endsWith('.ts') && !/\.test\.ts$|(^|\/)config\.ts$|^cli\/settings\.ts$|\.gen\.ts$/.test(path),
    )
    .map((path) => readFileSync(join(src, path), 'utf8').replace(/^\s*(\/\/|\/?\*).*$/gm, ''))
    .join('\n')
  const words = new Set(code.match(/[A-Za-z_][A-Za-z0-9_]*/g))
  const unread = runTable()
    .settings.map((s) => s.path)
    .filter((path) => !words.has(path.split('.').at(-1)!))
  assert.deepEqual(unread, [])
})
