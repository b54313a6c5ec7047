import { assert } from '../core/index.ts'

// The inner loop of resampling as WebAssembly: four neighbouring bytes are four 32-bit lanes, one multiply-add a tap, and
// the saturating narrows do the clipping. The module is assembled here from named instructions, so that what runs can be
// read. In JavaScript the same loop takes three to four times as long.

/** Fractional bits of a weight: 32 - 8 (sample) - 2 (sign and overshoot). Sums then fit 32 bits. */
export const weightBits = 22

/**
 * Computes one line. For every step i, with all addresses and steps in bytes:
 *   sum = half + sum over k of bytes[src + first[i] + k * tapStep .. + 3] * weights[i * weightStep + k]
 *   bytes[out + i * outStep .. + 3] = sum >> weightBits, clipped to 0..255
 * until out reaches `end`. `first` and `weights` are tables of int32; tapBytes = 4 * number of taps.
 */
type Line = (
  src: number,
  out: number,
  end: number,
  first: number,
  weights: number,
  weightStep: number,
  tapBytes: number,
  tapStep: number,
  outStep: number,
) => void

// Locals: the nine parameters in order, then the scratch ones.
const [src, out, end, first, weights, weightStep, tapBytes, tapStep, outStep] = [0, 1, 2, 3, 4, 5, 6, 7, 8]
const [pixel, weight, weightEnd, sum] = [9, 10, 11, 12]

const i32 = 0x7f
const v128 = 0x7b
const get = (local: number) => [0x20, local]
const set = (local: number) => [0x21, local]
const tee = (local: number) => [0x22, local]
const constant = (n: number) => [0x41, ...signedLeb(n)]
const loop = [0x03, 0x40]
const close = [0x0b]
const repeatIf = [0x0d, 0]
const load = [0x28, 2, 0]
const add = [0x6a]
const less = [0x49] // unsigned
const loadFourBytes = [0xfd, 0x5c, 0, 0] // into lane 0, zeros above
const bytesToShorts = [0xfd, 0x89, 1]
const shortsToInts = [0xfd, 0xa9, 1]
const loadInAllLanes = [0xfd, 0x09, 2, 0]
const toAllLanes = [0xfd, 0x11]
const addLanes = [0xfd, 0xae, 1]
const multiplyLanes = [0xfd, 0xb5, 1]
const shiftLanes = [0xfd, 0xac, 1] // arithmetic, to the right
const intsToShorts = [0xfd, 0x86, 1] // saturating, signed
const shortsToBytes = [0xfd, 0x66] // saturating, unsigned
const storeFourBytes = [0xfd, 0x5a, 0, 0, 0]

function signedLeb(n: number): number[] {
  const low = n & 0x7f
  const rest = n >> 7
  const done = (rest === 0 && (low & 0x40) === 0) || (rest === -1 && (low & 0x40) !== 0)
  return done ? [low] : [low | 0x80, ...signedLeb(rest)]
}

const advance = (local: number, by: number[]) => [...get(local), ...by, ...add, ...set(local)]

const oneTap = [
  ...[...get(sum), ...get(pixel), ...loadFourBytes, ...bytesToShorts, ...shortsToInts],
  ...[...get(weight), ...loadInAllLanes, ...multiplyLanes, ...addLanes, ...set(sum)],
  ...advance(pixel, get(tapStep)),
  ...[...get(weight), ...constant(4), ...add, ...tee(weight), ...get(weightEnd), ...less, ...repeatIf],
]

const oneStep = [
  ...[...get(src), ...get(first), ...load, ...add, ...set(pixel)],
  ...[...get(weights), ...tee(weight), ...get(tapBytes), ...add, ...set(weightEnd)],
  ...[...constant(1 << (weightBits - 1)), ...toAllLanes, ...set(sum)],
  ...[...loop, ...oneTap, ...close],
  ...[...get(out), ...get(sum), ...constant(weightBits), ...shiftLanes],
  ...[...tee(sum), ...get(sum), ...intsToShorts, ...tee(sum), ...get(sum), ...shortsToBytes, ...storeFourBytes],
  ...[...advance(first, constant(4)), ...advance(weights, get(weightStep))],
  ...[...get(out), ...get(outStep), ...add, ...tee(out), ...get(end), ...less, ...repeatIf],
]

const sized = (bytes: number[]) => [...unsignedLeb(bytes.length), ...bytes]

function unsignedLeb(n: number): number[] {
  return n < 128 ? [n] : [(n & 0x7f) | 0x80, ...unsignedLeb(n >>> 7)]
}

function assemble(): Uint8Array {
  const code = [...[2, 3, i32, 1, v128], ...loop, ...oneStep, ...close, ...close]
  const section = (id: number, content: number[]) => [id, ...sized(content)]
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, [1, 0x60, 9, ...new Array<number>(9).fill(i32), 0]),
    ...section(3, [1, 0]),
    ...section(5, [1, 0, 1]),
    ...section(7, [2, 1, 0x6d, 2, 0, 1, 0x66, 0, 0]), // exports: memory m, function f
    ...section(10, [1, ...sized(code)]),
  ])
}

export interface Kernel {
  readonly line: Line
  readonly memory: Uint8Array
}

interface Exports {
  m: { readonly buffer: ArrayBuffer; grow(pages: number): number }
  f: Line
}

// The part of the platform's WebAssembly used here; neither the es2023 library nor Node's types declare it.
declare const WebAssembly: {
  Module: new (bytes: Uint8Array) => object
  Instance: new (module: object) => { readonly exports: unknown }
}

const pageBytes = 65536
/** Larger work gets its own memory, which is freed; a WebAssembly memory never shrinks. */
const keptBytes = 256 * 1024 * 1024

let module: object | undefined
let kept: Exports | undefined

function instantiate(): Exports {
  module ??= new WebAssembly.Module(assemble())
  return new WebAssembly.Instance(module).exports as Exports
}

/** The kernel with at least `bytes` of memory. The contents are the caller's until the next call. */
export function kernelWith(bytes: number): Kernel {
  assert(bytes < 2 ** 32 - pageBytes, 'a WebAssembly memory has at most 4 GiB')
  if (bytes <= keptBytes) kept ??= instantiate()
  const { m, f } = bytes <= keptBytes ? kept! : instantiate()
  const missing = bytes - m.buffer.byteLength
  if (missing > 0) m.grow(Math.ceil(missing / pageBytes))
  return { line: f, memory: new Uint8Array(m.buffer) }
}
