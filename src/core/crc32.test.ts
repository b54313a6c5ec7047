import assert from 'node:assert/strict'
import { test } from 'node:test'
import { crc32 } from './crc32.ts'

test('CRC-32 gives the published check values', () => {
  assert.equal(crc32(Buffer.from('123456789')), 0xcbf43926)
  assert.equal(crc32(Buffer.from('12345'), Buffer.from('6789')), 0xcbf43926)
  assert.equal(crc32(), 0)
})

test('CRC-32 of every byte is that of zlib', () => {
  assert.equal(crc32(Uint8Array.from({ length: 256 }, (_, i) => i)), 0x29058c73)
})
