/** A reflected CRC of 32 bits over several pieces in order. */
function crcOf(polynomial: number): (...pieces: readonly Uint8Array[]) => number {
  const table = Uint32Array.from({ length: 256 }, (_, n) => {
    for (let bit = 0; bit < 8; bit++) n = n & 1 ? polynomial ^ (n >>> 1) : n >>> 1
    return n >>> 0
  })
  return (...pieces) => {
    let crc = 0xffffffff
    for (const bytes of pieces)
      for (let i = 0; i < bytes.length; i++) crc = table[(crc ^ bytes[i]!) & 0xff]! ^ (crc >>> 8)
    return (crc ^ 0xffffffff) >>> 0
  }
}

/** CRC-32 as zip, PNG and Parquet use it. */
export const crc32 = crcOf(0xedb88320)
/** CRC-32C (Castagnoli). */
export const crc32c = crcOf(0x82f63b78)
