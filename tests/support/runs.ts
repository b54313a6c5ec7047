// For tests: a toy Sa2VA of a few hundred kilobytes that answers with [SEG], small runs of it, and hosts whose scores have spread.
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { languageModelNames, openWeights, readTensors, tensorSource, writeWeights } from '../../src/checkpoint/index.ts'
import { sha256 } from '../../src/core/index.ts'
import { openSource } from '../../src/data/index.ts'
import { parseSa2VAConfig, Sa2VA } from '../../src/models/index.ts'
import { initRandom, tensorAt } from '../../src/nn/index.ts'
import type { Answer, ScoredRow } from '../../src/rewards/index.ts'
import { type Group, type Run, StepReport, sampleAndScore, step, type Task } from '../../src/rl/index.ts'
import {
  disposeModel,
  Encoder,
  type Host,
  Learner,
  openModel,
  type RunConfig,
  type RunInput,
  resolveRun,
  runOf,
} from '../../src/run/index.ts'
import {
  type Cycle,
  type CycleSample,
  requireGrounded,
  type TaskKind,
  taskKinds,
  type WorkItem,
} from '../../src/tasks/index.ts'
import { noGrad, type Tensor, tidy } from '../../src/tensor/index.ts'
import { chatTemplate, loadTokenizer } from '../../src/text/index.ts'

const golden = fileURLToPath(new URL('../fixtures/golden/sa2va-tiny', import.meta.url))

export function scratch(name: string): string {
  return mkdtempSync(join(tmpdir(), `roundtrip-${name}-`))
}

/** One tile of 4x4 image tokens, masks of 16x16. Every code path of the real model is there. */
function toyConfig(): Record<string, unknown> {
  const raw = JSON.parse(readFileSync(join(golden, 'config.json'), 'utf8')) as Record<string, Record<string, unknown>>
  return {
    ...raw,
    force_image_size: 56,
    max_dynamic_patch: 1,
    vision_config: {
      ...raw.vision_config,
      hidden_size: 16,
      intermediate_size: 32,
      num_hidden_layers: 2,
      image_size: 56,
    },
    llm_config: { ...raw.llm_config, hidden_size: 32, num_hidden_layers: 2, intermediate_size: 48 },
    grounding_encoder_config: {
      image_size: 64,
      embed_dim: 8,
      num_heads: 1,
      stages: [1, 1, 1, 1],
      global_att_blocks: [2],
      window_pos_embed_bkg_spatial_size: [4, 4],
      window_spec: [8, 4, 4, 2],
      d_model: 16,
      decoder_mlp_dim: 32,
      iou_head_hidden_dim: 16,
    },
  }
}

/**
 * Random weights, except that the most likely answer is "[SEG] purple" and the end: the head's row of each of these tokens points
 * along the embedding of the one before. Samples at temperature 1 are still spread widely.
 */
export function makeToy(dir: string, seed = 1): string {
  mkdirSync(dir, { recursive: true })
  const config = toyConfig()
  writeFileSync(join(dir, 'config.json'), JSON.stringify(config))
  copyFileSync(join(golden, 'tokenizer.json'), join(dir, 'tokenizer.json'))
  const model = new Sa2VA(parseSa2VAConfig(config))
  initRandom(model, { seed })
  noGrad(() => tidy(() => sayingSeg(model, dir)))
  const weights = [...model.parameters()]
  writeWeights(
    dir,
    weights.map(([name, t]) => tensorSource(name, t)),
  )
  for (const [, t] of weights) t.dispose()
  return dir
}

function sayingSeg(model: Sa2VA, dir: string): void {
  const tokenizer = loadTokenizer(dir)
  const template = chatTemplate('phi3_chat')
  const idsOf = (text: string) => tokenizer.encode(text, { addSpecial: false })
  const last = idsOf(template.instruction('')).at(-1)!
  const chain = [last, tokenizer.requireId('[SEG]'), idsOf(' purple').at(-1)!, [...tokenizer.eosIds][0]!]
  for (const slot of model.slots()) {
    if (/^language_model\..*\.(o_proj|down_proj)\.weight$/.test(slot.name)) tensorAt(slot).mul_(0.3)
  }
  const weights = model.parameters()
  const embedding = weights.get('language_model.model.embed_tokens.weight')!
  const head = weights.get('language_model.lm_head.weight')!
  const point = (row: number, at: number) => {
    const e = embedding.select(0, at)
    head.select(0, row).copy_(e.mul(3.5 / e.square().sum().item())) // a score of about 7
  }
  for (let i = 1; i < chain.length; i++) point(chain[i]!, chain[i - 1]!)
}

export function toyRun(model: string, output: string, input: Partial<RunInput> = {}): RunConfig {
  return resolveRun({
    model,
    output,
    device: 'cpu',
    threads: 1,
    dataPath: 'scenes:24',
    evalRecords: 0,
    batchSize: 2,
    maxSteps: 4,
    saveSteps: 1,
    tensorboard: false,
    ...input,
    data: { workers: 0, prefetch: 2, evalFraction: 0.25, ...input.data },
    rl: { numGenerations: 3, maxCompletionLength: 8, ...input.rl },
    optim: { learningRate: 1e-3, lrSchedulerType: 'constant', ...input.optim },
    lora: { rank: 4, alpha: 8, ...input.lora },
  })
}

export type Scores = (answer: Answer, k: number, task: string) => number | null

/** A reward between 0 and 1 that differs from sample to sample and depends on nothing but the sample's name. */
export const spread: Scores = (answer) => Number.parseInt(sha256(answer.id).slice(0, 6), 16) / 0xffffff

export function hostOf(scores: Scores = spread, more: Partial<Host> = {}): Host {
  const row = (total: number | null): ScoredRow => ({
    total,
    parts: { made: total },
    counted: [{ name: 'made', weight: 1, value: total }],
    dropped: [],
  })
  return {
    score: async (task, groups) => ({
      rows: groups.map((answers) => answers.map((a, k) => row(scores(a, k, task)))),
    }),
    progress: () => undefined,
    stopping: () => false,
    yieldToLoop: async () => undefined,
    ...more,
  }
}

/** A host that wants to stop after a step. */
export function stoppingAfter(last: number, scores: Scores = spread): Host {
  let step = 0
  const progress: Host['progress'] = (event) => {
    if (event.kind === 'step') step = event.step!
  }
  return hostOf(scores, { stopping: () => step === last, progress })
}

/** The parts of a run in memory, for tests of a step. */
export interface Opened {
  config: RunConfig
  run: Run
  learner: Learner
  encoder: Encoder
  cycle: Cycle
  items: WorkItem[]
  /** Samples and scores of the current records, drawn with the numbers of `step`. */
  sample(step?: number): Promise<Group[]>
  /** One update from groups, of all tasks or of those given. */
  learn(groups: readonly Group[], learningRate: number, tasks?: readonly Task[]): Promise<StepReport>
  dispose(): void
}

export async function openRun(config: RunConfig, count = 2, host = hostOf()): Promise<Opened> {
  const family = openModel(config)
  const learner = new Learner(family, config)
  const encoder = new Encoder(family, config)
  const kind = taskKinds.cycle as TaskKind<RunConfig>
  const run = runOf(config, kind.build(family, config), learner, encoder, host)
  const source = await openSource(config.dataPath, config.data)
  const examples = await Promise.all(Array.from({ length: count }, (_, i) => source.get(i)))
  await source.close()
  const items = encoder.items(examples)
  encoder.inWork(items, () => {
    for (const task of run.tasks) if (task.opens) task.open(items)
  })
  const batch = (number: number) => ({ draw: { seed: config.seed, step: number }, pieces: [items] })
  return {
    config,
    run,
    learner,
    encoder,
    cycle: { family: requireGrounded(family), config },
    items,
    sample: (number = 0) => sampleAndScore(run, batch(number)),
    learn: (groups, learningRate, tasks = run.tasks) =>
      step({ ...run, tasks }, { ...batch(0), groups }, learningRate, new StepReport()),
    dispose() {
      encoder.release(items)
      learner.dispose()
      disposeModel(family)
    },
  }
}

/** The samples of a group of one of the two round trips. */
export function samplesIn(group: Pick<Group, 'samples'>): CycleSample[] {
  return group.samples as CycleSample[]
}

/** One hash per tensor: equal when every bit is. */
export function hashes(tensors: Iterable<readonly [string, Tensor]>): Map<string, string> {
  const out = new Map<string, string>()
  for (const [name, t] of tensors) {
    const { buffer, byteOffset, byteLength } = noGrad(() => tidy(() => t.detach().contiguous().array()))
    out.set(name, sha256(new Uint8Array(buffer, byteOffset, byteLength)))
  }
  return out
}

/** Tensors of a run's checkpoint as float64 numbers, adapters under the model's names. */
export function storedWeights(output: string, step: number, files: readonly string[]): Map<string, number[]> {
  const path = join(output, `checkpoint_step_${step}`)
  return tidy(() => {
    const out = new Map<string, number[]>()
    for (const file of files)
      for (const [name, t] of readTensors(openWeights(join(path, `${file}.safetensors`)), 'cpu'))
        out.set(name.replace(languageModelNames.file, languageModelNames.ours), t.numbers())
    return out
  })
}

export function changed(a: ReadonlyMap<string, string>, b: ReadonlyMap<string, string>): string[] {
  return [...a.keys()].filter((name) => a.get(name) !== b.get(name))
}

/** Hash of every file of a run that the seed decides, by path: events, samples, and all of its checkpoints. */
export function runBytes(output: string): Map<string, string> {
  const out = new Map<string, string>()
  for (const name of readdirSync(output, { recursive: true }) as string[]) {
    if (!/^(events|samples)\.jsonl$|^checkpoint_step_\d+\/[^/]+$/.test(name)) continue
    out.set(name, sha256(readFileSync(join(output, name))))
  }
  return out
}
