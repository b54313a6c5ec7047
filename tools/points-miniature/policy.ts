// A miniature Qwen2.5-VL for the point task. First it learns where the neighbours of the object are, then bad habits: points next to the
// object, on it, anywhere. Reinforcement learning has to remove them. R rows per step, one image and one answer each.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type RandomStream, stream, streamId } from '../../src/core/index.ts'
import { positionTensor, withCompletions } from '../../src/llm/prompted-model.ts'
import {
  chatText,
  type LoadedQwenVL,
  openQwenVL,
  parseQwenVLConfig,
  patchImage,
  QwenVL,
} from '../../src/models/index.ts'
import { initRandom } from '../../src/nn/index.ts'
import type { Point } from '../../src/tasks/index.ts'
import {
  derivePrompt,
  heuristicNegatives,
  makePointScene,
  type PointScene,
  pointQuestion,
  randomNegatives,
  resolvePoints,
  sceneSide,
} from '../../src/tasks/index.ts'
import { cat, int64Tensor, noGrad, type Tensor, tensor } from '../../src/tensor/index.ts'
import { addedToken } from '../../src/text/tokenizer-files.ts'
import { trainByteLevelBpe } from '../lib/bpe-trainer.ts'
import { crossEntropy, runStage } from '../miniature/stage.ts'
import shapes from './shapes.json' with { type: 'json' }
import { writeModule } from './write.ts'

const added = [
  '<|endoftext|>',
  '<|im_start|>',
  '<|im_end|>',
  '<|vision_start|>',
  '<|vision_end|>',
  '<|vision_pad|>',
  '<|image_pad|>',
  '<|video_pad|>',
]

export const settings = resolvePoints({ imageSize: sceneSide, wording: 'short' })
export const frame = { width: sceneSide, height: sceneSide }

/** Questions of all modes and answers; every word becomes one token. */
export function sceneCorpus(): string[] {
  const scenes = Array.from({ length: 60 }, (_, i) => makePointScene(0, i))
  const modes = (['negatives', 'second-look', 'joint'] as const).map((mode) =>
    resolvePoints({ mode, imageSize: sceneSide, wording: 'short' }),
  )
  const questions = scenes.flatMap((s) => modes.map((mode) => chatText(questionOf(s, mode), [1])))
  return [...questions, ...scenes.map((s) => written(s.parts.map((p) => p.centre)))]
}

export function questionOf(scene: PointScene, config = settings): string {
  const { query, mask } = scene.record
  return pointQuestion({ query, positive: derivePrompt(mask), model: frame, original: frame }, config)
}

function written(points: readonly Point[]): string {
  return `[${points.map(([x, y]) => `[${x},${y}]`).join(',')}]`
}

/** A folder with config, tokenizer and freshly drawn weights; each of `answers` is one token. */
export function newPolicy(
  dir: string,
  seed: number,
  corpus: readonly string[],
  shape: keyof typeof shapes.policies = 'scene',
  device?: string,
  answers: readonly string[] = [],
): LoadedQwenVL {
  const { config: sizes, processor } = shapes.policies[shape]
  mkdirSync(dir, { recursive: true })
  const tokenizer = trainByteLevelBpe(corpus, { maxMerges: 500, addedTokens: added })
  const base = Object.keys(tokenizer.model.vocab).length
  const id = (token: string) => base + added.indexOf(token)
  for (const text of answers)
    tokenizer.added_tokens.push(addedToken(base + tokenizer.added_tokens.length, text, { special: false }))
  const text = {
    vocab_size: base + tokenizer.added_tokens.length,
    rms_norm_eps: 1e-6,
    max_position_embeddings: 2048,
    hidden_act: 'silu',
    tie_word_embeddings: true,
    bos_token_id: id('<|endoftext|>'),
    eos_token_id: id('<|im_end|>'),
    torch_dtype: 'float32',
  }
  const nested = 'text_config' in sizes ? { text_config: { ...text, ...sizes.text_config } } : {}
  const config = {
    ...sizes,
    ...text,
    ...nested,
    vision_start_token_id: id('<|vision_start|>'),
    vision_end_token_id: id('<|vision_end|>'),
    image_token_id: id('<|image_pad|>'),
    video_token_id: id('<|video_pad|>'),
  }
  const { patch_size } = sizes.vision_config
  const common = { patch_size, temporal_patch_size: 2, merge_size: 2, min_pixels: 3136, max_pixels: 12845056 }
  writeFileSync(join(dir, 'config.json'), `${JSON.stringify(config, null, 2)}\n`)
  writeFileSync(join(dir, 'tokenizer.json'), `${JSON.stringify(tokenizer)}\n`)
  writeFileSync(join(dir, 'preprocessor_config.json'), `${JSON.stringify({ ...common, ...processor }, null, 2)}\n`)
  const model = new QwenVL(parseQwenVLConfig(config))
  initRandom(model, { seed })
  noGrad(() => model.model.embed_tokens.weight.mul_(0.25)) // the head is tied to it: scores start small
  writeModule(model, dir)
  for (const t of model.parameters().values()) t.dispose()
  return openQwenVL(dir, { dtype: 'float32', device })
}

export interface PolicyStage {
  name: string
  steps: number
  rows: number
  learningRate: number
  seed: number
  pool: number
  /** Share of answers that are bad habits; above 0 no answer abstains. */
  habits: number
}

type Patched = ReturnType<typeof patchImage>

/** A scene as the policy reads it; rendered once and reused. */
interface Lesson {
  scene: PointScene
  image: Patched
  ids: Int32Array
}

export function trainPolicy(loaded: LoadedQwenVL, stage: PolicyStage): void {
  const { model, tokenizer } = loaded
  const pool = new Map<number, Lesson>()
  const lessonAt = (i: number) => {
    const index = i % stage.pool
    const lesson = pool.get(index) ?? lessonOf(loaded, makePointScene(stage.seed, index))
    pool.set(index, lesson)
    return lesson
  }
  const loss = (step: number) => {
    const random = stream(streamId.scenes, stage.seed, stage.name, step)
    const lessons = Array.from({ length: stage.rows }, (_, r) => lessonAt(step * stage.rows + r))
    const images = lessons.map((lesson) => lesson.image)
    const { tokens } = model.visual.forward(cat(images.map((image) => patchTensor(image))), images)
    const answers = lessons.map(({ scene }) => {
      const habitual = random.uniform() < stage.habits || (stage.habits > 0 && scene.parts.length === 1)
      const points = habitual ? habit(scene, random) : confusable(scene, random)
      return tokenizer.encode(`${written(points)}<|im_end|>`, { addSpecial: false })
    })
    const prompts = lessons.map(({ ids }) => ids)
    const scores = answerScores(model, tokens, images[0]!, prompts, answers)
    const wanted = int64Tensor(answers.flatMap((own) => [...own]))
    const loss = crossEntropy(scores, wanted)
    return { loss, metrics: { loss } }
  }
  const { name, steps, learningRate } = stage
  runStage({ name, params: new Map(model.parameters()), steps, learningRate, loss })
}

function lessonOf({ tokenizer, processor: config, cfg }: LoadedQwenVL, scene: PointScene): Lesson {
  const image = patchImage(scene.record.image, config)
  const tokens = (image.rows * image.columns) / cfg.vision.spatial_merge_size ** 2
  return { scene, image, ids: tokenizer.encode(chatText(questionOf(scene), [tokens]), { addSpecial: false }) }
}

/** Of each token of the answers, [tokens, V]; all rows in each operation: one by one, small images would be many small operations. */
export function answerScores(
  model: QwenVL,
  images: Tensor, // [R * units, S]
  grid: Pick<Patched, 'rows' | 'columns' | 'height' | 'width'>,
  prompts: readonly Int32Array[],
  answers: readonly Int32Array[],
) {
  const index = (values: number[]) => int64Tensor(values, { device: images.device })
  const rows = prompts.map((ids, r) => [...ids, ...answers[r]!.subarray(0, -1)])
  const L = Math.max(...rows.map((row) => row.length))
  const ids = rows.flatMap((row) => [...row, ...Array<number>(L - row.length).fill(0)])
  const places = ids.flatMap((id, i) => (id === model.cfg.image_token_id ? [i] : []))
  const x = model.decoder.embed(index(ids)).indexCopy(0, index(places), images).view([rows.length, L, -1])
  const byLength = new Map<string, Int32Array[]>() // the image comes first: lengths alone decide the positions
  const positions = prompts.map((own, r) => {
    const key = `${own.length} ${answers[r]!.length}`
    if (!byLength.has(key)) {
      const before = model.promptPositions({ ids: own, images: [{ ...grid, tokens: images, deepstack: [] }] })
      byLength.set(key, withCompletions(before, [answers[r]!.length - 1], L))
    }
    return byLength.get(key)!
  })
  const pass = { positions: positionTensor(positions, images.device) }
  const hidden = model.decoder.forward(x, pass).flatten({ endDim: 1 })
  const from = answers.flatMap((own, r) => Array.from(own, (_, j) => r * L + prompts[r]!.length - 1 + j))
  return model.decoder.logits(hidden.indexSelect(0, index(from)))
}

/** [patches, values] */
export function patchTensor({ pixels, rows, columns }: Patched, device = 'cpu'): Tensor {
  return tensor(pixels, [rows * columns, pixels.length / (rows * columns)], { device })
}

/** The middle of the neighbour. */
function confusable(scene: PointScene, random: RandomStream): Point[] {
  const spread = () => random.below(3) - 1
  return scene.parts.slice(1).map(({ centre: [x, y] }) => inFrame([x + spread(), y + spread()]))
}

function inFrame([x, y]: Point): Point {
  const clamp = (v: number) => Math.max(0, Math.min(sceneSide - 1, Math.round(v)))
  return [clamp(x), clamp(y)]
}

/** A bad point: on the object, next to it, or anywhere. */
function habit(scene: PointScene, random: RandomStream): Point[] {
  const { mask } = scene.record
  const dice = random.uniform()
  if (dice < 0.35) return derivePrompt(mask).points.slice(0, 1)
  if (dice < 0.75) return randomNegatives(mask, 1, random)
  if (dice < 0.85) return heuristicNegatives(mask, 1)
  return [[random.below(sceneSide), random.below(sceneSide)]]
}
