import assert from 'node:assert/strict'
import { test } from 'node:test'
import { redactor } from './redact.ts'

const key = 'sk-Proj+Ab/9xY_77~Q"z'
const redact = redactor([key])

test('a secret is found in every form that a server may write back', () => {
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  const forms = {
    exact: key,
    lower: key.toLowerCase(),
    upper: key.toUpperCase(),
    reversed: [...key].reverse().join(''),
    url: encodeURIComponent(key),
    json: JSON.stringify(key).slice(1, -1),
    hex: Buffer.from(key).toString('hex'),
    base64: base64(key),
    base64url: Buffer.from(key).toString('base64url'),
  }
  for (const [name, form] of Object.entries(forms)) assert.equal(redact(`bad (${form}) ok`), 'bad ([key]) ok', name)
  // Inside a longer text the secret starts at any of three offsets.
  for (const before of ['', 'a', 'ab', 'user:', 'Bearer ']) {
    const hidden = redact(base64(`${before}${key}`))
    assert.ok(hidden.includes('[key]') && hidden.length < 24, `${before}: ${hidden}`)
  }
})

test('every prefix, suffix and middle piece of 8 characters or more is removed', () => {
  const plain = 'SECRETtoken1234567'
  const hide = redactor([plain])
  for (let from = 0; from < plain.length; from++)
    for (let to = from + 1; to <= plain.length; to++) {
      const piece = plain.slice(from, to)
      assert.equal(hide(`<${piece}>`), to - from >= 8 ? '<[key]>' : `<${piece}>`)
    }
  assert.equal(hide(`${plain.slice(0, 9)}\u200b${plain.slice(9)}`), '[key]\u200b[key]')
})

test('two secrets side by side and around other text leave that text as it is', () => {
  const hide = redactor(['first-secret', undefined, 'other-secret'])
  assert.equal(hide('a first-secret b other-secret c'), 'a [key] b [key] c')
  assert.equal(hide('first-secretother-secret'), '[key]')
  assert.equal(hide('İ first-secret'), 'İ [key]')
  assert.equal(hide('nothing here'), 'nothing here')
})

test('a secret of fewer than 8 characters is left alone', () => {
  const hide = redactor(['1', '0', 'a', 'EMPTY', '1234567'])
  for (const text of ['10', 'a red box', 'EMPTY 1234567']) assert.equal(hide(text), text)
  assert.equal(redactor(['12345678'])('x12345678y'), 'x[key]y')
})
