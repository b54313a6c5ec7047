// Writes a Sa2VA folder of a named size with seeded random weights, to measure loading and memory without a download.
// Only one tensor at a time is in memory.
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { Command, Option } from 'commander'
import { byteLengthOf, type TensorSource, writeWeights } from '../src/checkpoint/index.ts'
import { whole } from '../src/cli/model.ts'
import { atomicWriteJson, humanBytes, log, stream, streamId } from '../src/core/index.ts'
import { generations, parseSa2VAQwenConfig } from '../src/models/index.ts'
import {
  addedTokensOf,
  configOf,
  languageOf,
  type ShapeName,
  shapeNames,
  tensorShapes,
  tokenizerOf,
} from './lib/checkpoint-shapes.ts'

interface Flags {
  shape: ShapeName
  dtype: 'bfloat16' | 'float32'
  seed: number
  shardBytes: number
  layers?: number
  speaks?: boolean
}

/** A prime, so that the rows of a matrix do not repeat. */
const block = 1_048_573

/** One block of normal numbers; a tensor reads it from an offset that depends on its name. */
class Values {
  readonly #bits: Uint8Array
  readonly #item: number
  readonly #seed: number

  constructor(dtype: Flags['dtype'], seed: number, spread: number) {
    const random = stream(seed, streamId.init)
    const values = Float32Array.from({ length: block }, (_, i) => random.normalAt(i) * spread)
    const bits =
      dtype === 'float32' ? values : Uint16Array.from(new Uint32Array(values.buffer), (b) => (b + 0x8000) >>> 16)
    this.#bits = new Uint8Array(bits.buffer)
    this.#item = bits.BYTES_PER_ELEMENT
    this.#seed = seed
  }

  fill(out: Uint8Array, name: string): Uint8Array {
    let from = stream(this.#seed, streamId.init, name).below(block) * this.#item
    for (let at = 0; at < out.length; ) {
      const piece = this.#bits.subarray(from, Math.min(this.#bits.length, from + out.length - at))
      out.set(piece, at)
      at += piece.length
      from = 0
    }
    return out
  }
}

/** 1 in norms, layer scale 0.1, biases 0, matrices N(0, 0.02), the position codes N(0, 1). */
function makeSource(flags: Flags): (name: string, shape: readonly number[]) => TensorSource {
  const dtype = flags.dtype === 'float32' ? 'F32' : 'BF16'
  const small = new Values(flags.dtype, flags.seed, 0.02)
  const unit = new Values(flags.dtype, flags.seed, 1)
  const constant = (bytes: number, value: number) => {
    const wide = new Float32Array(1).fill(value)
    const one = new Uint8Array(wide.buffer).subarray(dtype === 'F32' ? 0 : 2)
    return Uint8Array.from({ length: bytes }, (_, i) => one[i % one.length]!)
  }
  return (name, shape) => ({
    name,
    dtype,
    shape,
    data: () => {
      const bytes = byteLengthOf(dtype, shape)!
      if (/gaussian_matrix$/.test(name)) return unit.fill(new Uint8Array(bytes), name)
      if (shape.length > 1) return small.fill(new Uint8Array(bytes), name)
      if (/\.(ls[12]|g_weight)$/.test(name)) return constant(bytes, 0.125)
      return /\.bias$/.test(name) ? new Uint8Array(bytes) : constant(bytes, 1)
    },
  })
}

/**
 * Adds one common direction to all embeddings, and rows of the head that respond to it. The model then writes [SEG] and ends, if that is
 * allowed, else letters, so that both loops run all their phases.
 */
function speaking(config: Record<string, unknown>, dtype: Flags['dtype']): (source: TensorSource) => TensorSource {
  const size = languageOf(config).vocab_size
  const added = addedTokensOf(config)
  const idOf = (token: string) => size - added.length + added.indexOf(token)
  const [seg, end] = [idOf('[SEG]'), idOf('<|im_end|>')]
  const letters = Array.from({ length: 26 }, (_, i) => 97 - 33 + i)
  return (source) => {
    const { name, shape, data } = source
    const item = dtype === 'float32' ? 4 : 2
    const of = (...changes: [column: number, rows: readonly number[], value: number][]) => ({
      ...source,
      data: () => {
        const bytes = (data as () => Uint8Array)()
        for (const [column, rows, value] of changes) {
          const one = new Uint8Array(Float32Array.of(value).buffer).subarray(4 - item)
          for (const row of rows) bytes.set(one, (row * shape[1]! + column) * item)
        }
        return bytes
      },
    })
    const all = Array.from({ length: size }, (_, id) => id)
    if (/(embed_tokens|tok_embeddings)\.weight$/.test(name)) return of([0, all, 1000], [1, [seg], 1000])
    if (!/(lm_head|language_model\.output)\.weight$/.test(name)) return source
    return of([0, letters, 2], [0, [seg], 5], [1, [end], 8])
  }
}

function make(out: string, flags: Flags): void {
  const config = configOf(flags.shape, flags.dtype, flags.layers)
  const shapes = tensorShapes(config)
  mkdirSync(out, { recursive: true })
  const source = makeSource(flags)
  const said = flags.speaks ? speaking(config, flags.dtype) : (entry: TensorSource) => entry
  const entries = Array.from(shapes, ([name, shape]) => said(source(name, shape)))
  const files = writeWeights(out, entries, { maxShardBytes: flags.shardBytes })
  atomicWriteJson(join(out, 'config.json'), config)
  atomicWriteJson(join(out, 'tokenizer.json'), tokenizerOf(languageOf(config).vocab_size, addedTokensOf(config)))
  if (config.text_config) atomicWriteJson(join(out, 'preprocessor_config.json'), processorOf(config))
  atomicWriteJson(join(out, 'tokenizer_config.json'), {
    tokenizer_class: 'Qwen2Tokenizer',
    eos_token: '<|im_end|>',
    pad_token: '<|endoftext|>',
  })
  const elements = [...shapes.values()].reduce((sum, s) => sum + s.reduce((a, b) => a * b, 1), 0)
  const size = humanBytes(elements * (flags.dtype === 'float32' ? 4 : 2))
  log.info(`${out}: ${shapes.size} tensors, ${elements} elements, ${size} in ${files.length} files`)
}

/** How the base model reads images. */
function processorOf(config: Record<string, unknown>): object {
  const { patch, merge, frames, mean, std } = generations[parseSa2VAQwenConfig(config).base].processor
  return { patch_size: patch, merge_size: merge, temporal_patch_size: frames, image_mean: mean, image_std: std }
}

new Command('make-checkpoint')
  .argument('<out>', 'a folder without weights')
  .addOption(new Option('--shape <name>', 'size').choices([...shapeNames]).default('tiny'))
  .addOption(new Option('--dtype <name>', 'of every weight').choices(['bfloat16', 'float32']).default('bfloat16'))
  .option('--seed <n>', 'of the weights', whole, 0)
  .option('--layers <n>', 'of the language model and the vision tower, fewer than the size has', whole)
  .option('--speaks', 'answers are letters, and [SEG] if allowed: both loops run')
  .option('--shard-bytes <n>', 'maximum bytes of a file', whole, 5_000_000_000)
  .action(make)
  .parse()
