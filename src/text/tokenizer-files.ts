// Reads what a checkpoint folder says about its tokenizer and brings it to one form: the object of tokenizer.json.
import { existsSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { isObject, type JsonObject, Mismatch, readJsonObject, readTextFile, refuseAt } from '../core/index.ts'
import type { DecoderStep } from './token-decoder.ts'

export interface AddedToken {
  id: number
  content: string
  single_word: boolean
  lstrip: boolean
  rstrip: boolean
  normalized: boolean
  special: boolean
}

/** tokenizer.json, the parts we look into. */
export interface TokenizerJson {
  version?: string
  added_tokens: AddedToken[]
  normalizer: unknown
  pre_tokenizer: unknown
  post_processor: unknown
  decoder: DecoderStep | null
  model: {
    type: string
    vocab: Record<string, number> | [string, number][]
    merges?: unknown[]
    [key: string]: unknown
  }
  [key: string]: unknown
}

export interface TokenizerFiles {
  where: string
  json: TokenizerJson
  /** tokenizer_config.json, {} without the file. */
  settings: JsonObject
  /** Ids that end a generation, as far as the folder's configs declare them. */
  declaredEos: number[]
}

/** Qwen2's pre-tokeniser pattern. */
export const qwen2Pattern =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

function readOptional(path: string): JsonObject {
  return existsSync(path) ? readJsonObject(path) : {}
}

/** All four fields: Hugging Face's tokenizers library refuses a file that leaves one out. */
const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false } as const

/** A tokenizer.json with Qwen2's blocks around a vocabulary. */
export function qwen2TokenizerJson(
  vocab: Record<string, number>,
  merges: [string, string][],
  added: AddedToken[],
): TokenizerJson {
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: added,
    normalizer: { type: 'NFC' },
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: qwen2Pattern }, behavior: 'Isolated', invert: false },
        byteLevel,
      ],
    },
    post_processor: byteLevel,
    decoder: byteLevel,
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab,
      merges,
    },
  }
}

export function addedToken(id: number, content: string, options: Partial<AddedToken> = {}): AddedToken {
  return { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...options }
}

function readMerges(path: string): [string, string][] {
  const merges: [string, string][] = []
  for (const [index, line] of readTextFile(path).split(/\r?\n/).entries()) {
    if (line === '' || (index === 0 && line.startsWith('#version'))) continue
    const [left, right, ...rest] = line.split(' ')
    const expected = 'two tokens and a space between'
    if (!left || !right || rest.length > 0)
      throw new Mismatch({ where: path, field: `line ${index + 1}`, expected, got: line })
    merges.push([left, right])
  }
  return merges
}

/** Contents of a token, or of a list of tokens, written as strings or as objects. */
export function contentsOf(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  if (Array.isArray(value)) return value.flatMap(contentsOf)
  return value && typeof value === 'object' ? contentsOf((value as JsonObject).content) : []
}

/** Content strings named as special in special_tokens_map.json or tokenizer_config.json. */
function namedSpecials(...sources: JsonObject[]): Set<string> {
  const entries = sources.flatMap((source) => Object.entries(source))
  return new Set(entries.flatMap(([key, value]) => (/_tokens?$/.test(key) ? contentsOf(value) : [])))
}

/** Added tokens in the files next to the vocabulary: added_tokens.json and tokenizer_config.json. */
function listedTokens(folder: string, settings: JsonObject): AddedToken[] {
  const detailed = (settings.added_tokens_decoder ?? {}) as Record<string, Partial<AddedToken>>
  const tokens = new Map<number, AddedToken>()
  for (const [id, token] of Object.entries(detailed)) {
    if (!isObject(token)) {
      const [where, field] = [join(folder, 'tokenizer_config.json'), `added_tokens_decoder.${id}`]
      throw new Mismatch({ where, field, expected: 'a token', got: typeof token })
    }
    tokens.set(Number(id), addedToken(Number(id), String(token.content), { ...token, id: Number(id) }))
  }
  const specials = namedSpecials(settings, readOptional(join(folder, 'special_tokens_map.json')))
  for (const [content, id] of Object.entries(readOptional(join(folder, 'added_tokens.json')))) {
    if (typeof id !== 'number') {
      throw new Mismatch({ where: join(folder, 'added_tokens.json'), field: content, expected: 'a token id', got: id })
    }
    if (!tokens.has(id))
      tokens.set(id, addedToken(id, content, { special: specials.size === 0 || specials.has(content) }))
  }
  return [...tokens.values()].sort((a, b) => a.id - b.id)
}

/** Adds the listed tokens that tokenizer.json lacks; one id with two contents is an error. */
function mergeListed(json: TokenizerJson, listed: readonly AddedToken[], where: string): TokenizerJson {
  const known = new Map(json.added_tokens.map((t) => [t.id, t.content]))
  const missing: AddedToken[] = []
  for (const token of listed) {
    const content = known.get(token.id)
    if (content === undefined) missing.push(token)
    else if (content !== token.content) {
      const hint = 'added_tokens.json or tokenizer_config.json belong to another checkpoint'
      return refuseAt(where)(`added token ${token.id}`, `${content} as in tokenizer.json`, token.content, hint)
    }
  }
  return missing.length === 0 ? json : { ...json, added_tokens: [...json.added_tokens, ...missing] }
}

function idList(value: unknown): number[] {
  if (typeof value === 'number') return [value]
  return Array.isArray(value) ? value.filter((v): v is number => typeof v === 'number') : []
}

/** generation_config.json decides; without it config.json, its text part included. */
function declaredEos(folder: string): number[] {
  const generation = idList(readOptional(join(folder, 'generation_config.json')).eos_token_id)
  if (generation.length > 0) return generation
  const config = readOptional(join(folder, 'config.json'))
  for (const part of [config, config.llm_config, config.text_config] as unknown[]) {
    const ids = idList(isObject(part) ? part.eos_token_id : undefined)
    if (ids.length > 0) return ids
  }
  return []
}

function readTokenizerJson(path: string): TokenizerJson {
  const json = readJsonObject(path) as unknown as TokenizerJson
  if (!isObject(json.model) || typeof json.model.vocab !== 'object' || json.model.vocab === null)
    throw new Mismatch({ where: path, field: 'model.vocab', expected: 'a vocabulary', got: 'none' })
  const added = json.added_tokens ?? []
  if (!Array.isArray(added))
    throw new Mismatch({ where: path, field: 'added_tokens', expected: 'a list', got: typeof added })
  for (const [i, token] of added.entries()) {
    if (isObject(token) && typeof token.content === 'string' && token.content !== '') continue
    throw new Mismatch({ where: path, field: `added_tokens.${i}`, expected: 'a token with its content', got: token })
  }
  return { ...json, added_tokens: added }
}

/** Reads a checkpoint folder, or one tokenizer.json. */
export function readTokenizerFiles(path: string): TokenizerFiles {
  if (!existsSync(path))
    throw new Mismatch({ where: path, expected: 'a folder with a tokenizer', got: 'nothing there' })
  const isFolder = statSync(path).isDirectory()
  const folder = isFolder ? path : dirname(path)
  const single = isFolder ? join(folder, 'tokenizer.json') : path
  const settings = readOptional(join(folder, 'tokenizer_config.json'))
  const listed = listedTokens(folder, settings)
  if (existsSync(single)) {
    const json = mergeListed(readTokenizerJson(single), listed, folder)
    return { where: single, json, settings, declaredEos: declaredEos(folder) }
  }
  const vocab = join(folder, 'vocab.json')
  const merges = join(folder, 'merges.txt')
  if (!existsSync(vocab) || !existsSync(merges)) throw noTokenizer(folder)
  const json = qwen2TokenizerJson(readJsonObject(vocab) as Record<string, number>, readMerges(merges), listed)
  return { where: folder, json, settings, declaredEos: declaredEos(folder) }
}

/** A folder whose vocabulary is a SentencePiece model: the model, and what the files beside it add. */
export interface SentencePieceFiles {
  modelPath: string
  settings: JsonObject
  listed: AddedToken[]
  /** Contents that tokenizer_config.json or special_tokens_map.json name as special. */
  named: string[]
  /** Of those, the additional ones. */
  additional: string[]
  declaredEos: number[]
}

/** Null where a folder has tokenizer.json or vocab.json, which are preferred, or no tokenizer.model. */
export function readSentencePieceFiles(path: string): SentencePieceFiles | null {
  const single = path.endsWith('.model') && existsSync(path) && !statSync(path).isDirectory()
  const folder = single ? dirname(path) : path
  const modelPath = single ? path : join(folder, 'tokenizer.model')
  const others = ['tokenizer.json', 'vocab.json'].some((name) => existsSync(join(folder, name)))
  if (!existsSync(modelPath) || (others && !single)) return null
  const settings = readOptional(join(folder, 'tokenizer_config.json'))
  const map = readOptional(join(folder, 'special_tokens_map.json'))
  return {
    modelPath,
    settings,
    listed: listedTokens(folder, settings),
    named: [...namedSpecials(settings, map)],
    additional: [...contentsOf(settings.additional_special_tokens), ...contentsOf(map.additional_special_tokens)],
    declaredEos: declaredEos(folder),
  }
}

function noTokenizer(folder: string): Mismatch {
  return new Mismatch({
    where: folder,
    expected: 'tokenizer.json, vocab.json with merges.txt, or tokenizer.model',
    got: 'none of them',
    hint: `is ${basename(folder)} a checkpoint folder?`,
  })
}
