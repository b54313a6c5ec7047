// Removes the symbols of a 64-bit ELF program: what the loader maps stays unchanged, the rest of the file is removed.
const [loaded, linksInfo, zeroed, sectionBytes] = [0x2n, 0x40n, 8, 64]

/** @param {Buffer} file */
export function stripElf(file) {
  if (file.toString('latin1', 0, 6) !== '\x7fELF\x02\x01') throw new Error('expected a little-endian 64-bit ELF file')
  const sections = readSections(file)
  const kept = sections.filter((s, i) => i === 0 || (s.flags & loaded) !== 0n)
  const names = Buffer.concat([...kept.map((s) => Buffer.from(`${s.name}\0`)), Buffer.from('.shstrtab\0')])
  const end = Math.max(endOfSegments(file), ...kept.filter((s) => s.type !== zeroed).map((s) => s.offset + s.size))
  const tableAt = Math.ceil((end + names.length) / 8) * 8
  const table = Buffer.alloc((kept.length + 1) * sectionBytes)
  const placeOf = (old) => Math.max(0, kept.indexOf(sections[old]))
  let nameAt = 0
  kept.forEach((section, i) => {
    const header = table.subarray(i * sectionBytes, (i + 1) * sectionBytes)
    section.header.copy(header)
    header.writeUInt32LE(nameAt, 0)
    header.writeUInt32LE(placeOf(section.link), 40)
    if (section.flags & linksInfo) header.writeUInt32LE(placeOf(section.info), 44)
    nameAt += section.name.length + 1
  })
  const last = table.subarray(kept.length * sectionBytes)
  last.writeUInt32LE(nameAt, 0)
  last.writeUInt32LE(3, 4) // a table of strings
  last.writeBigUInt64LE(BigInt(end), 24)
  last.writeBigUInt64LE(BigInt(names.length), 32)
  last.writeBigUInt64LE(1n, 48)
  const out = Buffer.alloc(tableAt + table.length)
  file.copy(out, 0, 0, end)
  names.copy(out, end)
  table.copy(out, tableAt)
  out.writeBigUInt64LE(BigInt(tableAt), 0x28)
  out.writeUInt16LE(kept.length + 1, 0x3c)
  out.writeUInt16LE(kept.length, 0x3e)
  return out
}

function readSections(file) {
  const [at, count, namesAt] = [Number(file.readBigUInt64LE(0x28)), file.readUInt16LE(0x3c), file.readUInt16LE(0x3e)]
  const headers = Array.from({ length: count }, (_, i) =>
    file.subarray(at + i * sectionBytes, at + (i + 1) * sectionBytes),
  )
  const names = Number(headers[namesAt].readBigUInt64LE(24))
  return headers.map((header) => {
    const nameAt = names + header.readUInt32LE(0)
    return {
      header,
      name: file.toString('latin1', nameAt, file.indexOf(0, nameAt)),
      type: header.readUInt32LE(4),
      flags: header.readBigUInt64LE(8),
      offset: Number(header.readBigUInt64LE(24)),
      size: Number(header.readBigUInt64LE(32)),
      link: header.readUInt32LE(40),
      info: header.readUInt32LE(44),
    }
  })
}

/** Offset after the last byte that the loader reads. */
function endOfSegments(file) {
  const [at, size, count] = [Number(file.readBigUInt64LE(0x20)), file.readUInt16LE(0x36), file.readUInt16LE(0x38)]
  const ends = Array.from({ length: count }, (_, i) => {
    const header = file.subarray(at + i * size, at + (i + 1) * size)
    return Number(header.readBigUInt64LE(8)) + Number(header.readBigUInt64LE(32))
  })
  return Math.max(at + size * count, ...ends)
}
