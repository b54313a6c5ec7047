// Writes a Sa2VA folder of a named size with seeded random weights: for measuring loading and memory without a download.
// One tensor at a time is in memory.
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { Command, InvalidArgumentError, Option } from 'commander'
import { byteLengthOf, type TensorSource, writeWeights } from '../src/checkpoint/index.ts'
import { atomicWriteJson, humanBytes, log, stream, streamId } from '../src/core/index.ts'
import { configOf, type ShapeName, shapeNames, tensorShapes, tokenizerOf } from './lib/checkpoint-shapes.ts'

interface Flags {
  shape: ShapeName
  dtype: 'bfloat16' | 'float32'
  seed: number
  shardBytes: number
}

/** A prime, so that rows of a matrix never line up with the block and repeat. */
const block = 1_048_573

/** Normal numbers of one spread; tensors are cut from them at places their names decide. */
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

function make(out: string, flags: Flags): void {
  const config = configOf(flags.shape, flags.dtype)
  const shapes = tensorShapes(config)
  mkdirSync(out, { recursive: true })
  const source = makeSource(flags)
  const entries = Array.from(shapes, ([name, shape]) => source(name, shape))
  const files = writeWeights(out, entries, { maxShardBytes: flags.shardBytes })
  atomicWriteJson(join(out, 'config.json'), config)
  atomicWriteJson(join(out, 'tokenizer.json'), tokenizerOf((config.llm_config as { vocab_size: number }).vocab_size))
  atomicWriteJson(join(out, 'tokenizer_config.json'), {
    tokenizer_class: 'Qwen2Tokenizer',
    eos_token: '<|im_end|>',
    pad_token: '<|endoftext|>',
  })
  const elements = [...shapes.values()].reduce((sum, s) => sum + s.reduce((a, b) => a * b, 1), 0)
  const size = humanBytes(elements * (flags.dtype === 'float32' ? 4 : 2))
  log.info(`${out}: ${shapes.size} tensors, ${elements} elements, ${size} in ${files.length} files`)
}

function wholeNumber(text: string): number {
  const value = Number(text)
  if (!Number.isInteger(value) || value < 0) throw new InvalidArgumentError('a whole number, please')
  return value
}

new Command('make-checkpoint')
  .argument('<out>', 'a folder without weights')
  .addOption(new Option('--shape <name>', 'size').choices([...shapeNames]).default('tiny'))
  .addOption(new Option('--dtype <name>', 'of every weight').choices(['bfloat16', 'float32']).default('bfloat16'))
  .option('--seed <n>', 'of the weights', wholeNumber, 0)
  .option('--shard-bytes <n>', 'most bytes of a file', wholeNumber, 5_000_000_000)
  .action(make)
  .parse()
