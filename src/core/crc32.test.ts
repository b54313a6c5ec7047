import assert from 'node:assert/strict'
import { test } from 'node:test'
import { crc32, crc32c } from './crc32.ts'

test('CRC-32 gives the published check values', () => {
  assert.equal(crc32(Buffer.from('123456789')), 0xcbf43926)
  assert.equal(crc32(Buffer.from('12345'), Buffer.from('6789')), 0xcbf43926)
  assert.equal(crc32(), 0)
})

test('CRC-32 of every byte is that of zlib', () => {
  assert.equal(crc32(Uint8Array.from({ length: 256 }, (_, i) => i)), 0x29058c73)
})

test('CRC-32C gives the published check values', () => {
  assert.equal(crc32c(Buffer.from('123456789')), 0xe3069283)
  assert.equal(crc32c(Buffer.alloc(32)), 0x8a9136aa)
  assert.equal(crc32c(Buffer.alloc(32, 0xff)), 0x62a8ab43)
  assert.equal(crc32c(Buffer.from(Array.from({ length: 32 }, (_, i) => i))), 0x46dd794e)
  assert.equal(crc32c(Buffer.alloc(0)), 0)
})
