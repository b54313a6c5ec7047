// Recognizes a golden file or folder by its content; names and seeds do not matter.
import { existsSync, readdirSync, readFileSync, readSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { type JsonObject, Mismatch, tryJsonObject, withOpen } from '../core/index.ts'

type ModelKind = 'sa2va' | 'sa2va-qwen' | 'qwen2_5_vl' | 'qwen3_vl' | 'mobilesam' | 'sam2-mask-prompt' | 'lora'
export type GoldenKind = ModelKind | ('grpo' | 'meteor' | 'porter' | 'points' | 'benchmarks' | 'sentencepiece' | 'misc')

export interface Golden {
  path: string
  kind: GoldenKind
}

/** The golden sets at a path: itself, or those directly below it. Entries that are none are listed in `others`. */
export function findGolden(path: string): { found: Golden[]; others: string[] } {
  if (!existsSync(path)) throw new Mismatch({ where: path, expected: 'a golden file or folder', got: 'nothing there' })
  const own = besideTensors(path)
  const kind = kindOf(own)
  if (kind) return { found: [{ path: own, kind }], others: [] }
  const found: Golden[] = []
  const others: string[] = []
  for (const name of statSync(path).isDirectory() ? readdirSync(path).sort() : []) {
    const inner = join(path, name)
    const innerKind = kindOf(inner)
    if (innerKind) found.push({ path: inner, kind: innerKind })
    else others.push(inner)
  }
  if (found.length > 0) return { found, others }
  throw new Mismatch({
    where: path,
    expected:
      'grpo-golden JSON, METEOR, Porter or points lines, mask prompts of SAM2, a model, adapter or misc folder with golden.json, or benchmarks with expected.json',
    got: others.length > 0 ? `a folder with ${others.length} other entries` : 'something else',
  })
}

/** Tensors of a set whose cases are in a JSON file of the same name: either name means both. */
function besideTensors(path: string): string {
  const cases = path.replace(/\.safetensors$/, '.json')
  return existsSync(cases) ? cases : path
}

function kindOf(path: string): GoldenKind | null {
  return statSync(path).isDirectory() ? folderKind(path) : fileKind(path)
}

function folderKind(dir: string): GoldenKind | null {
  const has = (name: string) => existsSync(join(dir, name))
  const format = (name: string) => tryJsonObject(readFileSync(join(dir, name), 'utf8'))?.['format']
  if (has('expected.json') && has('predictions.jsonl'))
    return format('expected.json') === 'benchmarks-golden' ? 'benchmarks' : null
  if (has('cases.json')) return format('cases.json') === 'sentencepiece-golden' ? 'sentencepiece' : null
  if (!has('golden.json')) return null
  if (has('adapter_config.json') && has('base.safetensors')) return 'lora'
  if (has('prompts.json') && has('tensors.tsv')) return 'mobilesam'
  if (has('config.json')) return modelKind(join(dir, 'config.json'))
  return has('golden.safetensors') ? 'misc' : null
}

function modelKind(path: string): GoldenKind | null {
  const config = tryJsonObject(readFileSync(path, 'utf8'))
  const type = config?.['model_type']
  const grounded = type === 'sa2va_chat' || config?.['grounding_encoder_config'] !== undefined
  if (grounded) return config?.['text_config'] ? 'sa2va-qwen' : 'sa2va'
  return type === 'qwen2_5_vl' || type === 'qwen3_vl' ? type : null
}

function fileKind(path: string): GoldenKind | null {
  if (!/\.json$/.test(path)) return lineKind(tryJsonObject(firstLine(path)))
  const content = tryJsonObject(readFileSync(path, 'utf8'))
  if (content && 'set' in content && 'cases' in content) return 'sam2-mask-prompt'
  return content?.['format'] === 'grpo-golden' ? 'grpo' : null
}

function lineKind(row: JsonObject | undefined): GoldenKind | null {
  if (!row) return null
  if ('reference' in row && 'hypothesis' in row && 'score' in row) return 'meteor'
  if ('kind' in row && 'input' in row && 'expected' in row) return 'points'
  return 'word' in row && 'stem' in row ? 'porter' : null
}

function firstLine(path: string): string {
  const piece = Buffer.alloc(1 << 16)
  const length = withOpen(path, (fd) => readSync(fd, piece))
  const text = piece.toString('utf8', 0, length)
  return text.split('\n').find((line) => line.trim() !== '') ?? ''
}
