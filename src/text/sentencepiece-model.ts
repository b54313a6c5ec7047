// A SentencePiece `tokenizer.model` as data: pieces, and the settings that change ids or text. Fields as in sentencepiece_model.proto.
import {
  Mismatch,
  type ProtoField,
  protoBool,
  protoBytes,
  protoFields,
  protoFloat,
  protoInt,
  protoText,
} from '../core/index.ts'

const pieceTypes = ['', 'normal', 'unknown', 'control', 'user', 'unused', 'byte'] as const
type PieceType = Exclude<(typeof pieceTypes)[number], ''>

export interface Piece {
  text: string
  /** Of a normal piece: higher merges first (BPE), log-probability (unigram). */
  score: number
  type: PieceType
}

export interface NormalizerSettings {
  name: string
  /** Double-array trie and replacement texts; empty: identity. */
  charsmap: Uint8Array
  addDummyPrefix: boolean
  removeExtraWhitespaces: boolean
  escapeWhitespaces: boolean
}

export interface SentencePieceModel {
  where: string
  kind: 'unigram' | 'bpe'
  pieces: readonly Piece[]
  unknownId: number
  byteFallback: boolean
  /** Id of each of the 256 bytes; empty without byte fallback. */
  byteIds: readonly number[]
  /** What the unknown id decodes to. */
  unknownSurface: string
  whitespaceAsSuffix: boolean
  normalizer: NormalizerSettings
  /** Applied to decoded text; absent in almost every file. */
  denormalizer: NormalizerSettings | null
  /** Ids by piece: what text can become, and what it cannot (control, unknown, byte). */
  textIds: ReadonlyMap<string, number>
  reservedIds: ReadonlyMap<string, number>
}

/** Larger than any released file by far; a length field cannot make the reader allocate more than the file itself. */
const maxBytes = 256 * 2 ** 20

export function readSentencePieceModel(bytes: Uint8Array, where: string): SentencePieceModel {
  if (bytes.length === 0 || bytes.length > maxBytes)
    throw new Mismatch({ where, expected: `a SentencePiece model of 1 to ${maxBytes} bytes`, got: bytes.length })
  const pieces: Piece[] = []
  const parts: Record<'trainer' | 'normalizer' | 'denormalizer', Uint8Array[]> = {
    trainer: [],
    normalizer: [],
    denormalizer: [],
  }
  for (const field of protoFields(bytes, where)) {
    if (field.number === 1) pieces.push(readPiece(protoBytes(field, where, 'pieces'), pieces.length, where))
    else if (field.number === 2) parts.trainer.push(protoBytes(field, where, 'trainer_spec'))
    else if (field.number === 3) parts.normalizer.push(protoBytes(field, where, 'normalizer_spec'))
    else if (field.number === 5) parts.denormalizer.push(protoBytes(field, where, 'denormalizer_spec'))
  }
  if (pieces.length === 0) throw new Mismatch({ where, field: 'pieces', expected: 'at least one piece', got: 'none' })
  const trainer = readTrainer(parts.trainer, where)
  const denormalizer = readNormalizer(parts.denormalizer, where)
  return {
    where,
    pieces,
    ...trainer,
    ...indexPieces(pieces, trainer.byteFallback, where),
    normalizer: readNormalizer(parts.normalizer, where),
    denormalizer: denormalizer.charsmap.length > 0 ? denormalizer : null,
  }
}

function readPiece(message: Uint8Array, id: number, where: string): Piece {
  const name = `pieces[${id}]`
  const piece: Piece = { text: '', score: 0, type: 'normal' }
  for (const field of protoFields(message, `${where}: ${name}`)) {
    if (field.number === 1) piece.text = protoText(field, where, `${name}.piece`)
    else if (field.number === 2) piece.score = protoFloat(field, where, `${name}.score`)
    else if (field.number === 3) piece.type = typeOf(field, where, `${name}.type`)
  }
  if (piece.text === '') throw new Mismatch({ where, field: name, expected: 'a piece with text', got: 'an empty one' })
  if (!Number.isFinite(piece.score))
    throw new Mismatch({ where, field: `${name}.score`, expected: 'a finite number', got: String(piece.score) })
  return piece
}

function typeOf(field: ProtoField, where: string, name: string): PieceType {
  const number = protoInt(field, where, name)
  const type = pieceTypes[number]
  if (type) return type
  throw new Mismatch({ where, field: name, expected: 'a type from 1 to 6', got: number })
}

function readTrainer(messages: readonly Uint8Array[], where: string) {
  let model = 1
  let byteFallback = false
  let unknownSurface = ' \u2047 '
  let whitespaceAsSuffix = false
  for (const message of messages)
    for (const field of protoFields(message, `${where}: trainer_spec`)) {
      if (field.number === 3) model = protoInt(field, where, 'trainer_spec.model_type')
      else if (field.number === 24) whitespaceAsSuffix = protoBool(field, where, 'treat_whitespace_as_suffix')
      else if (field.number === 35) byteFallback = protoBool(field, where, 'trainer_spec.byte_fallback')
      else if (field.number === 44) unknownSurface = protoText(field, where, 'trainer_spec.unk_surface')
    }
  if (model !== 1 && model !== 2) {
    const got = ['', '', '', 'word', 'char'][model] ?? model
    throw new Mismatch({ where, field: 'trainer_spec.model_type', expected: 'unigram or bpe', got })
  }
  const kind: 'unigram' | 'bpe' = model === 1 ? 'unigram' : 'bpe'
  return { kind, byteFallback, unknownSurface, whitespaceAsSuffix }
}

/** A field that is absent has the library's default: prefix, removal and escaping are on. */
function readNormalizer(messages: readonly Uint8Array[], where: string): NormalizerSettings {
  const out: NormalizerSettings = {
    name: '',
    charsmap: new Uint8Array(0),
    addDummyPrefix: true,
    removeExtraWhitespaces: true,
    escapeWhitespaces: true,
  }
  for (const message of messages)
    for (const field of protoFields(message, `${where}: normalizer_spec`)) {
      if (field.number === 1) out.name = protoText(field, where, 'normalizer_spec.name')
      else if (field.number === 2) out.charsmap = protoBytes(field, where, 'normalizer_spec.precompiled_charsmap')
      else if (field.number === 3) out.addDummyPrefix = protoBool(field, where, 'normalizer_spec.add_dummy_prefix')
      else if (field.number === 4)
        out.removeExtraWhitespaces = protoBool(field, where, 'normalizer_spec.remove_extra_whitespaces')
      else if (field.number === 5) out.escapeWhitespaces = protoBool(field, where, 'normalizer_spec.escape_whitespaces')
    }
  return out
}

function indexPieces(pieces: readonly Piece[], byteFallback: boolean, where: string) {
  const textIds = new Map<string, number>()
  const reservedIds = new Map<string, number>()
  const byteIds: number[] = []
  let unknownId = -1
  pieces.forEach(({ text, type }, id) => {
    const ids = type === 'normal' || type === 'user' || type === 'unused' ? textIds : reservedIds
    if (ids.has(text)) throw twice(where, id, text, ids.get(text)!)
    ids.set(text, id)
    if (type === 'unknown') {
      if (unknownId >= 0) throw twice(where, id, 'a second unknown piece', unknownId)
      unknownId = id
    }
    if (type === 'byte') byteIds[byteOf(text, id, where)] = id
  })
  if (unknownId < 0) throw new Mismatch({ where, field: 'pieces', expected: 'one unknown piece', got: 'none' })
  requireBytes(byteIds, byteFallback, where)
  return { textIds, reservedIds, unknownId, byteIds }
}

function twice(where: string, id: number, text: string, before: number): Mismatch {
  return new Mismatch({ where, field: `pieces[${id}]`, expected: `other than pieces[${before}]`, got: text })
}

function byteOf(text: string, id: number, where: string): number {
  const hex = /^<0x([0-9A-F]{2})>$/.exec(text)
  if (hex) return Number.parseInt(hex[1]!, 16)
  throw new Mismatch({ where, field: `pieces[${id}]`, expected: 'a byte piece such as <0x0A>', got: text })
}

function requireBytes(byteIds: readonly number[], byteFallback: boolean, where: string): void {
  const there = byteIds.filter((id) => id !== undefined).length
  if (there === (byteFallback ? 256 : 0)) return
  const expected = byteFallback
    ? '256 byte pieces, because byte_fallback is on'
    : 'no byte pieces, because byte_fallback is off'
  throw new Mismatch({ where, field: 'pieces', expected, got: there })
}
