// Records of the task from whatever lies on disk: every source of region captions, RefCOCO and JSONL of ours (the caption is the query),
// Seg-Zero's shards with a folder of masks, and JSONL lines with a query, a box and points of their own.
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { basename, dirname, isAbsolute, join } from 'node:path'
import { Mismatch, messageOf } from '../../core/index.ts'
import { type DataOptions, type Example, openSegZero, openSource } from '../../data/index.ts'
import { decodeImageFor } from '../../image/index.ts'
import { decodeRle, type Mask, maskFromPng, type Rle } from '../../mask/index.ts'
import type { Box, Point } from '../../rewards/index.ts'
import type { PointRecord } from './record.ts'
import { makePointScene } from './scenes.ts'

/** Random access; nothing is decoded before it is asked for. */
export interface PointSource {
  name: string
  length: number
  get(index: number): Promise<PointRecord>
  close(): Promise<void>
}

export interface PointSourceOptions {
  /** Folder of mask PNGs named by id: the path holds Seg-Zero's shards. */
  maskDir?: string
  data?: DataOptions
  /** Of generated scenes. */
  seed?: number
}

/** `points:COUNT` is COUNT generated scenes with confusable neighbours. */
export async function openPointSource(path: string, options: PointSourceOptions = {}): Promise<PointSource> {
  const scenes = /^points:(\d+)$/.exec(path)
  if (scenes) return sceneSource(Number(scenes[1]), options.seed ?? 0)
  if (path.endsWith('.jsonl') && hasQuery(path)) return openQueries(path)
  const source = options.maskDir ? await openSegZero(path, options.maskDir) : await openSource(path, options.data)
  const { name, length } = source
  return { name, length, get: async (i) => recordOf(await source.get(i)), close: () => source.close() }
}

function sceneSource(length: number, seed: number): PointSource {
  const get = async (index: number) => makePointScene(seed, index).record
  return { name: 'points', length, get, close: async () => {} }
}

function recordOf({ id, image, mask, caption, meta }: Example): PointRecord {
  const { box, points } = meta as { box?: Box; points?: Point[] }
  return { id, image, mask, query: caption, ...(isBox(box) && { box }), ...(isPoints(points) && { points }) }
}

const isBox = (value: unknown): value is Box =>
  Array.isArray(value) && value.length === 4 && value.every((v) => Number.isFinite(v))

const isPoints = (value: unknown): value is Point[] =>
  Array.isArray(value) && value.every((p) => Array.isArray(p) && p.length === 2 && p.every((v) => Number.isFinite(v)))

type Line = Record<string, unknown>

function linesOf(path: string): { text: string; where: string }[] {
  const lines = readFileSync(path, 'utf8').split('\n')
  return lines.flatMap((text, i) => (text.trim() === '' ? [] : [{ text, where: `${path}: line ${i + 1}` }]))
}

function hasQuery(path: string): boolean {
  const [first] = linesOf(path)
  return first !== undefined && 'query' in parseLine(first.text, first.where)
}

function parseLine(text: string, where: string): Line {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Line
    throw new Mismatch({ where, expected: 'a JSON object', got: value })
  } catch (error) {
    if (error instanceof Mismatch) throw error
    throw new Mismatch({ where, expected: 'a JSON object', got: messageOf(error) }, { cause: error })
  }
}

function openQueries(path: string): PointSource {
  const lines = linesOf(path)
  const folder = dirname(path)
  const get = async (index: number) => readLine(parseLine(lines[index]!.text, lines[index]!.where), folder, lines[index]!.where)
  return { name: basename(path).replace(/\.jsonl$/, ''), length: lines.length, get, close: async () => {} }
}

async function readLine(line: Line, folder: string, where: string): Promise<PointRecord> {
  const { id, image, query, mask, box, points } = line
  const bad = (field: string, expected: string, got: unknown): never => {
    throw new Mismatch({ where, field, expected, got: got ?? 'nothing' })
  }
  if (typeof id !== 'string' && typeof id !== 'number') bad('id', 'text or a number', id)
  if (typeof image !== 'string') bad('image', 'a path', image)
  if (typeof query !== 'string' || query.trim() === '') bad('query', 'a phrase', query)
  if (box !== undefined && !isBox(box)) bad('box', '[x1, y1, x2, y2]', box)
  if (points !== undefined && !isPoints(points)) bad('points', '[[x, y], ..]', points)
  const inFolder = (file: string) => (isAbsolute(file) ? file : join(folder, file))
  const target = await readMask(mask, inFolder, where)
  const picture = await decodeImageFor(await readFile(inFolder(image as string)), target, where)
  const own = { ...(box !== undefined && { box: box as Box }), ...(points !== undefined && { points: points as Point[] }) }
  return { id: String(id), image: picture, query: (query as string).trim(), mask: target, ...own }
}

async function readMask(value: unknown, inFolder: (file: string) => string, where: string): Promise<Mask> {
  if (typeof value === 'string') return await maskFromPng(await readFile(inFolder(value)), where)
  if (typeof value === 'object' && value !== null) return decodeRle(value as Rle, where)
  throw new Mismatch({ where, field: 'mask', expected: 'the path of a PNG, or a COCO RLE', got: value ?? 'nothing' })
}
