// Bytes that a step of both loops takes on a GPU, from config.json and the settings alone: what stays, and the largest of the phases.
// The parts that follow from shapes are counted; the rest (a mask's way through SAM2's decoder, scores of the head, the libraries'
// workspace) was measured on one H200. `npm run bench -- memory` compares the plan with such a GPU.

import { join } from 'node:path'
import { humanBytes, readJsonObject } from '../core/index.ts'
import { cacheSpare, numWholeLayers } from '../llm/index.ts'
import { familyOf, type ModelSizes, modelSizes } from '../models/index.ts'
import { type MaskSupervision, supervisesMasks } from '../tasks/index.ts'
import type { RunConfig } from './config.ts'

export interface Card {
  /** Bytes that programs can use. */
  bytes: number
  /** Our kernels run there. */
  kernels: boolean
  /** With products of few rows; not before compute capability 9.0. */
  clusters?: boolean
}

export interface MemoryPlan {
  /** Frozen weights. */
  frozen: number
  /** Trained weights in float32 with moments, EMA copy and start, or this process's part of these; adapters once more where layers read them. */
  trained: number
  /** For sampling: weights with adapters merged, or the adapters as kernels read them beside quantized matrices. */
  merged: number
  features: number
  /** On top of all that while samples are drawn: key-value caches, adapters as decoding reads them, masks, the rest of a split EMA copy. */
  sampling: number
  /** On top of all that while the model learns: what decoding keeps for the next step, states, gradients, masks. */
  learning: number
  /** Most bytes in tensors at one time. */
  peak: number
}

const gib = 2 ** 30
/** Words of the question, a region's tokens, the turns of the conversation. */
const questionTokens = 128
/** Workspace of the libraries. */
const workspace = 0.35 * gib
/** A mask through SAM2's decoder: drawn, and learned from. */
const drawnMask = 0.14 * gib
const learnedMask = 0.13 * gib
/** Chunks of scores in float32 that learning from the head keeps at a time, if no kernel does it. */
const headCopies = 12
/** Elements of a chunk of scores: by our kernels, and by libtorch's ops. */
const [kernelChunk, opChunk] = [2 ** 26, 2 ** 25]
export const [bfloat16, float32] = [2, 4]

type Settings = Partial<Pick<RunConfig, 'splitMoments'>> &
  Pick<RunConfig, 'batchSize' | 'maxTiles' | 'frozenWeights' | 'checkpointing' | 'lora' | 'sampling'> & {
    rl: Pick<RunConfig['rl'], 'numGenerations' | 'maxCompletionLength' | 'gradientAccumulationSteps'>
  } & MaskSupervision

/**
 * Every answer is taken to be as long as it may be, every picture to have as many tiles. `batchSize` is that of this process, one of
 * `processes`.
 */
export function planMemory(sizes: ModelSizes, settings: Settings, card: Card, processes = 1): MemoryPlan {
  const quantized = settings.frozenWeights !== 'exact'
  const kernels = card.kernels && sizes.ownLayers && !quantized
  const adapters = adapterValues(sizes, settings)
  const frozen = bfloat16 * (sizes.values - sizes.trained) - savedBytes(sizes, settings)
  const part = settings.splitMoments ? 1 / processes : 1
  const state = float32 * (1 + 3 * part) // weight; EMA copy and two moments
  const start = float32 * sizes.trained
  const trained = state * (sizes.trained + adapters) + part * start + (kernels ? bfloat16 * adapters : 0) // the copy layers read
  const merges = chooseSampling(sizes, settings, card, processes).weights === 'merged'
  const fused = card.kernels && sizes.ownDecoding && (merges || quantized)
  const copied = new Set(quantized ? [...sizes.adapted, ...sizes.matrices] : sizes.adapted)
  const again = merges ? [...copied].reduce((sum, [out, input]) => sum + out * input, 0) : adapters
  const rows = settings.batchSize * settings.rl.numGenerations
  const ownHead = fused && merges && (card.clusters ?? true) && sizes.ownProducts(rows)
  const merged = merges || fused ? bfloat16 * again + (ownHead ? 0 : paddedHead(sizes)) : 0
  const features = bfloat16 * settings.batchSize * sizes.featureValues(tilesOf(settings))
  const states = decodeStates(sizes, settings, fused || merges ? 0 : adapters, fused)
  const decoding = decodingBytes(sizes, states, settings, fused ? 'shared' : card.bytes / 10)
  const gradients = float32 * (sizes.trained + adapters)
  const sampling = decoding.most + (1 - part) * float32 * (sizes.trained + adapters) // a split EMA copy is whole while it answers
  const learning =
    decoding.left +
    learningBytes(sizes, settings, kernels, { gradients, lent: merges ? bfloat16 * again : 0 }) +
    (1 - part) * start // and the start for the KL term
  const inWork = workspace + (quantized ? layerBytes(sizes) : 0)
  const peak = frozen + trained + merged + features + inWork + Math.max(sampling, learning)
  return { frozen, trained, merged, features, sampling, learning, peak }
}

export interface SamplingChoice {
  weights: 'merged' | 'exact'
  /** If the memory decided. */
  why: string | null
}

/** How the GPU samples: `auto` merges if our kernels decode and, with quantized matrices, if the plan fits with their copies. */
export function chooseSampling(sizes: ModelSizes, settings: Settings, card: Card, processes = 1): SamplingChoice {
  const { sampling, frozenWeights } = settings
  if (sampling.weights !== 'auto') return { weights: sampling.weights, why: null }
  if (!card.kernels || !sizes.ownDecoding) return { weights: 'exact', why: null }
  if (frozenWeights === 'exact') return { weights: 'merged', why: null }
  const plan = planMemory(sizes, { ...settings, sampling: { weights: 'merged' } }, card, processes)
  const why = `merged copies bring the planned peak to ${humanBytes(plan.peak)} of ${humanBytes(card.bytes)}`
  return { weights: fits(plan, card) ? 'merged' : 'exact', why }
}

export const adapterValues = ({ adapted }: ModelSizes, { lora }: Pick<RunConfig, 'lora'>): number =>
  adapted.reduce((sum, [out, input]) => sum + lora.rank * (out + input), 0)

/** One byte a value and a scale for every row, or half a byte and a scale for every 64 columns. */
function savedBytes({ matrices }: ModelSizes, { frozenWeights }: Settings): number {
  if (frozenWeights === 'exact') return 0
  const row = (columns: number) =>
    frozenWeights === 'int8' ? columns + bfloat16 : Math.ceil(columns / 64) * (32 + bfloat16)
  return matrices.reduce((sum, [out, input]) => sum + out * (bfloat16 * input - row(input)), 0)
}

/** The matrices of one layer, dequantized for their products. */
const layerBytes = ({ matrices, llm }: ModelSizes) =>
  (bfloat16 * matrices.reduce((sum, [out, input]) => sum + out * input, 0)) / llm.num_hidden_layers

const tilesOf = ({ maxTiles }: Settings) => maxTiles ?? 12

/** The head filled up to rows that the library's products want. */
const paddedHead = ({ llm }: ModelSizes) =>
  llm.vocab_size % 64 === 0 ? 0 : bfloat16 * llm.vocab_size * llm.hidden_size

interface DecodeBytes {
  cache: number
  adapters: number
  /** Masks are drawn from what was said. */
  draws: boolean
}

/** Loop 1 samples and is answered, loop 2 answers greedily and is described: in this order. `apart`: values of adapters that are not merged. */
function decodeStates(sizes: ModelSizes, settings: Settings, apart: number, fused: boolean): DecodeBytes[] {
  const { num_hidden_layers: layers, num_key_value_heads: groups, head_dim } = sizes.llm
  const { numGenerations: K, maxCompletionLength: length } = settings.rl
  const prompt = sizes.imageTokens(tilesOf(settings)) + questionTokens
  const perToken = 2 * bfloat16 * layers * groups * head_dim
  const of = (prompts: number, samples: number, words: number, draws: boolean): DecodeBytes => {
    const rows = prompts * samples
    const columns = fused ? prompts * (prompt + words) + rows * length : rows * (prompt + words + length)
    return { cache: perToken * columns, adapters: bfloat16 * apart, draws }
  }
  const B = settings.batchSize
  const asked = of(B, K, 0, false)
  if (sizes.samScale === 0) return [asked] // task points: one question a record
  return [asked, of(B * K, 1, length, true), of(B, 1, 0, true), of(B * K, 1, 0, false)]
}

/**
 * States stay for the next step while their caches are within the limit, the newest in any case; or their caches share a memory as large as
 * the largest asks for: src/llm/generate/recorded/pool.ts.
 */
function decodingBytes(
  { samScale }: ModelSizes,
  states: readonly DecodeBytes[],
  { batchSize, rl }: Settings,
  limit: number | 'shared',
): { most: number; left: number } {
  const masks = batchSize * rl.numGenerations * samScale * drawnMask
  if (limit === 'shared') {
    const caches = states.map(({ cache }) => cache)
    const left = cacheSpare * Math.max(...caches)
    return { most: left + Math.max(...caches, masks), left }
  }
  let kept: DecodeBytes[] = []
  let most = 0
  const total = (of: (state: DecodeBytes) => number) => kept.reduce((sum, state) => sum + of(state), 0)
  const whole = ({ cache, adapters }: DecodeBytes) => cache + adapters
  const shrink = (count: number) => {
    while (kept.length > count && total(({ cache }) => cache) > limit) kept = kept.slice(1)
  }
  for (const state of states) {
    shrink(0)
    kept.push(state)
    most = Math.max(most, total(whole) + Math.max(state.cache, state.draws ? masks : 0)) // the prompts are read into a separate cache
    shrink(1)
  }
  return { most, left: total(whole) }
}

/**
 * The larger of the loops: captions read after their prompt; or, with the gradients of the captions there, one answer a record and its
 * K masks. Or both in one pass, which kernels take: after one image captions, question and answer, with the masks. Inside a pass gradients
 * come as kept states go.
 */
function learningBytes(
  sizes: ModelSizes,
  settings: Settings,
  kernels: boolean,
  { gradients, lent }: { gradients: number; lent: number },
): number {
  const { batchSize: B, rl } = settings
  const { numGenerations: K, maxCompletionLength: length } = rl
  const prompt = sizes.imageTokens(tilesOf(settings)) + questionTokens
  const pass = (tokens: number) =>
    kernels ? byKernels(sizes, settings, tokens, lent) : opByOp(sizes, settings, tokens)
  const captions = pass(B * (prompt + K * length))
  const answers = pass(B * (prompt + length))
  const again = Number(supervisesMasks(settings)) // the supervised mask reads the answer once more
  const masks = B * (K + again) * sizes.samScale * learnedMask
  const before = rl.gradientAccumulationSteps > 1 ? gradients : 0 // those of an earlier piece
  const apart = Math.max(before + captions.kept + captions.passing, gradients + answers.kept * (1 + again) + masks)
  if (!kernels || again > 0 || masks === 0) return apart
  const both = pass(B * (prompt + K * length + questionTokens + length))
  return Math.max(apart, before + both.kept + Math.max(both.passing, masks))
}

interface PassBytes {
  /** Kept for backward. */
  kept: number
  /** Of the layer and the scores in work. */
  passing: number
}

/** Layers with a hand-written derivative: src/llm/score/by-hand/layer.ts says what they keep. `lent`: bytes of merged weights, free meanwhile. */
function byKernels({ llm }: ModelSizes, { checkpointing, lora }: Settings, tokens: number, lent: number): PassBytes {
  const { hidden_size: S, intermediate_size: I, num_hidden_layers: layers, head_dim: D } = llm
  const heads = llm.num_attention_heads * D
  const qkv = heads + 2 * llm.num_key_value_heads * D + 3 * lora.rank
  const gateUp = 2 * I + 2 * lora.rank
  const little = 2 * S + heads + 2 * lora.rank
  const inLent = Math.min(layers, Math.floor(lent / (bfloat16 * tokens * gateUp)))
  const whole = checkpointing ? 0 : numWholeLayers(layers, tokens, { qkv, gateUp }, inLent)
  const kept = layers * little + whole * qkv + Math.max(0, whole - inLent) * gateUp
  const passing = tokens * (gateUp + I + 4 * S) + 2 * kernelChunk
  return { kept: bfloat16 * tokens * kept, passing: bfloat16 * passing }
}

/** libtorch's derivative: everything between the products, or the input of every layer and one layer in work. */
function opByOp({ llm }: ModelSizes, { checkpointing }: Settings, tokens: number): PassBytes {
  const { hidden_size: S, intermediate_size: I, num_hidden_layers: layers } = llm
  const layer = bfloat16 * tokens * (4 * I + 12 * S)
  const scores = headCopies * float32 * opChunk
  if (checkpointing) return { kept: bfloat16 * tokens * layers * S, passing: 2 * layer + scores }
  return { kept: layers * layer, passing: scores }
}

/** Of a folder; its family is checked as if it were opened. */
export function sizesOfFolder(dir: string, targets: string | null = null): ModelSizes {
  familyOf(dir)
  return modelSizes(readJsonObject(join(dir, 'config.json')), targets)
}

/** Room for the driver's own memory, and for what the allocator cannot join. */
const driver = 0.6 * gib
const fragments = 1.05

export function fits(plan: Pick<MemoryPlan, 'peak'>, card: Card): boolean {
  return fragments * plan.peak + driver <= card.bytes
}
