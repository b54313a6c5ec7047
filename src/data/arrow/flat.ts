// Checks the bounds of Arrow's messages, which are flatbuffers. The package that decodes them trusts every offset and count: a
// damaged one makes it loop for hours. So all of them are checked here first.
import { Mismatch } from '../../core/index.ts'
import { damagedHint } from '../files.ts'

/** What a slot of a table holds besides plain numbers. */
type Kind =
  | { readonly kind: 'text' }
  | { readonly kind: 'items'; readonly bytes: number }
  | { readonly kind: 'table' | 'tables'; readonly shape: () => Shape }
  /** A table whose shape the number in another slot (one byte) names. */
  | { readonly kind: 'union'; readonly typeSlot: number; readonly shapes: Readonly<Record<number, () => Shape>> }

type Shape = Readonly<Record<number, Kind>>

const text: Kind = { kind: 'text' }
const items = (bytes: number): Kind => ({ kind: 'items', bytes })
const table = (shape: () => Shape): Kind => ({ kind: 'table', shape })
const tables = (shape: () => Shape): Kind => ({ kind: 'tables', shape })

// slots in the order of Arrow's Schema.fbs, Message.fbs and File.fbs
const pairShape: Shape = { 0: text, 1: text }
const dictionaryShape: Shape = { 1: table(() => ({})) }
const timestampShape: Shape = { 1: text }
const unionTypeShape: Shape = { 1: items(4) }
const fieldShape: Shape = {
  0: text,
  3: { kind: 'union', typeSlot: 2, shapes: { 10: () => timestampShape, 14: () => unionTypeShape } },
  4: table(() => dictionaryShape),
  5: tables(() => fieldShape),
  6: tables(() => pairShape),
}
const schemaShape: Shape = { 1: tables(() => fieldShape), 2: tables(() => pairShape), 3: items(8) }
const batchShape: Shape = { 1: items(16), 2: items(16), 3: table(() => ({})), 4: items(8) }
const dictionaryBatchShape: Shape = { 1: table(() => batchShape) }
const messageShape: Shape = {
  2: {
    kind: 'union',
    typeSlot: 1,
    shapes: { 1: () => schemaShape, 2: () => dictionaryBatchShape, 3: () => batchShape },
  },
  4: tables(() => pairShape),
}
const footerShape: Shape = { 1: table(() => schemaShape), 2: items(24), 3: items(24), 4: tables(() => pairShape) }

const maxDepth = 64

class FlatChecker {
  readonly #view: DataView
  readonly #fail: (what: string) => never
  /** Tables may be shared; without a limit a small file could expand without end. */
  #tablesLeft: number

  constructor(bytes: Uint8Array, fail: (what: string) => never) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    this.#fail = fail
    this.#tablesLeft = 64 + bytes.length / 4
  }

  root(shape: Shape): number {
    const at = this.#follow(0)
    this.#table(at, shape, 0)
    return at
  }

  /** Length of a vector of a table that was checked; 0 when absent. */
  itemCount(at: number, slot: number): number {
    const place = this.#slot(at, slot)
    return place === 0 ? 0 : this.#view.getUint32(this.#follow(place), true)
  }

  #need(at: number, length: number): void {
    if (at < 0 || at + length > this.#view.byteLength) this.#fail(`${length} bytes at ${at}`)
  }

  /** Where the offset stored at a place leads. */
  #follow(place: number): number {
    this.#need(place, 4)
    const target = place + this.#view.getUint32(place, true)
    this.#need(target, 4)
    return target
  }

  /** Place of a slot's value; 0 when the table has none. */
  #slot(at: number, slot: number): number {
    const list = at - this.#view.getInt32(at, true)
    const length = this.#view.getUint16(list, true)
    if (4 + 2 * slot + 2 > length) return 0
    const offset = this.#view.getUint16(list + 4 + 2 * slot, true)
    return offset === 0 ? 0 : at + offset
  }

  #table(at: number, shape: Shape, depth: number): void {
    if (depth > maxDepth) this.#fail(`tables nested deeper than ${maxDepth}`)
    if (--this.#tablesLeft < 0) this.#fail('more tables than its bytes can hold')
    this.#need(at, 4)
    const list = at - this.#view.getInt32(at, true)
    this.#need(list, 4)
    const length = this.#view.getUint16(list, true)
    const size = this.#view.getUint16(list + 2, true)
    this.#need(list, Math.max(4, length))
    this.#need(at, Math.max(4, size))
    for (let slot = 0; 4 + 2 * slot + 2 <= length; slot++) {
      const place = this.#slot(at, slot)
      if (place >= at + size) this.#fail(`a field at ${place}, after its table`)
      const kind = shape[slot]
      if (place > 0 && kind) this.#value(at, place, kind, depth)
    }
  }

  #value(at: number, place: number, kind: Kind, depth: number): void {
    const target = this.#follow(place)
    if (kind.kind === 'text') this.#need(target, 4 + this.#view.getUint32(target, true))
    else if (kind.kind === 'items') this.#need(target, 4 + kind.bytes * this.#view.getUint32(target, true))
    else if (kind.kind === 'table') this.#table(target, kind.shape(), depth + 1)
    else if (kind.kind === 'union') {
      const typePlace = this.#slot(at, kind.typeSlot)
      const type = typePlace === 0 ? 0 : this.#view.getUint8(typePlace)
      this.#table(target, kind.shapes[type]?.() ?? {}, depth + 1)
    } else {
      const count = this.#view.getUint32(target, true)
      this.#need(target, 4 + 4 * count)
      for (let i = 0; i < count; i++) this.#table(this.#follow(target + 4 + 4 * i), kind.shape(), depth + 1)
    }
  }
}

function checker(bytes: Uint8Array, where: string, at: number, what: string): FlatChecker {
  const expected = `offsets and counts inside its ${bytes.length} bytes`
  return new FlatChecker(bytes, (got) => {
    throw new Mismatch({ where, field: `${what} at byte ${at}`, expected, got, hint: damagedHint })
  })
}

/** Throws unless every offset, count and text of a message is inside its bytes. */
export function checkMessage(bytes: Uint8Array, where: string, at: number): void {
  checker(bytes, where, at, 'message').root(messageShape)
}

/** How many batches the footer of Arrow's file format lists. */
export function footerCounts(bytes: Uint8Array, where: string, at: number): { dictionaries: number; batches: number } {
  const flat = checker(bytes, where, at, 'footer')
  const root = flat.root(footerShape)
  return { dictionaries: flat.itemCount(root, 2), batches: flat.itemCount(root, 3) }
}
