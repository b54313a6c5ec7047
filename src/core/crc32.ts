const table = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1
  return n >>> 0
})

/** CRC-32 as zip, PNG and Parquet use it (polynomial 0xedb88320, reflected), of several pieces in order. */
export function crc32(...pieces: readonly Uint8Array[]): number {
  let crc = 0xffffffff
  for (const bytes of pieces)
    for (let i = 0; i < bytes.length; i++) crc = table[(crc ^ bytes[i]!) & 0xff]! ^ (crc >>> 8)
  return (crc ^ 0xffffffff) >>> 0
}
