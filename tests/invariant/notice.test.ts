// What is shipped has its licence in NOTICE.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { packageRoot } from '../../src/core/index.ts'

const root = packageRoot()
const page = join(root, 'src/dashboard/page')

test('NOTICE has the copyright of every package that is bundled into the live page', () => {
  const files = readdirSync(page).filter((name) => /\.tsx?$/.test(name))
  const texts = files.map((name) => readFileSync(join(page, name), 'utf8'))
  const imported = texts.flatMap((text) =>
    [...text.matchAll(/from '([^.'][^']*)'/g)].map(([, name]) => name!.split('/')[0]!),
  )
  const bundled = [...new Set(imported)].filter((name) => !name.startsWith('node:'))
  assert.ok(bundled.length >= 1, `${bundled}`)
  const notice = readFileSync(join(root, 'NOTICE'), 'utf8')
  for (const name of bundled) {
    const licence = readFileSync(join(root, 'node_modules', name, 'LICENSE'), 'utf8')
    const copyright = /^Copyright .*$/m.exec(licence)![0]
    assert.ok(notice.includes(copyright), `${name}: ${copyright}`)
  }
})
