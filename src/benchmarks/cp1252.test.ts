import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { Mismatch } from '../core/index.ts'
import { decodeText } from './cp1252.ts'

/** What Python's codec makes of each byte; null: it raises. */
const python = JSON.parse(readFileSync(new URL('fixtures/cp1252.json', import.meta.url), 'utf8')) as (number | null)[]

/** A lone 0xff is never UTF-8, so that the bytes before it are read as cp1252. */
const decodeOne = (byte: number) => decodeText(Uint8Array.of(byte, 0xff), 'a.json')

test('each of the 256 bytes decodes as in the cp1252 codec of Python', () => {
  assert.equal(python.length, 256)
  for (const [byte, point] of python.entries()) {
    if (point !== null) assert.equal(decodeOne(byte), `${String.fromCodePoint(point)}\u00ff`, byte.toString(16))
  }
})

test('the five bytes that cp1252 leaves undefined are rejected with their offset, as Python does', () => {
  const undefinedBytes = [...python.keys()].filter((byte) => python[byte] === null)
  assert.deepEqual(undefinedBytes, [0x81, 0x8d, 0x8f, 0x90, 0x9d])
  for (const byte of undefinedBytes) {
    const text = Uint8Array.of(65, 0x92, byte, 0xff)
    const isNamed = (error: unknown) =>
      error instanceof Mismatch &&
      error.message.includes(`a.json: byte 2: `) &&
      error.message.includes(`0x${byte.toString(16)}`)
    assert.throws(() => decodeText(text, 'a.json'), isNamed)
  }
})

test('UTF-8 stays UTF-8, also when its bytes are letters of cp1252', () => {
  assert.equal(decodeText(Buffer.from('naïve “quote” 猫'), 'a.json'), 'naïve “quote” 猫')
})
