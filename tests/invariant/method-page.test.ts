import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import { lossTypes } from '../../src/rl/index.ts'
import { workedExample } from '../support/worked-example.ts'

const page = readFileSync(new URL('../../docs/method.md', import.meta.url), 'utf8')

test('the worked example of docs/method.md has the numbers that the functions give', () => {
  const [, shown] = page.split('<!-- worked example -->\n')
  assert.equal(shown?.trim(), workedExample())
})

test('docs/method.md has a row with formula and source for every loss type', () => {
  for (const type of lossTypes) assert.match(page, new RegExp(`^\\| \`${type}\` \\| .+ \\| .+ \\| .+ \\|$`, 'm'), type)
})
