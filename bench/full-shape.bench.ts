// One two-loop step at the full Sa2VA-4B shape, random bf16 weights on CUDA: batch 1, K 4, one 448 tile, 128 new tokens.
// Where each phase's time goes, the peak of device memory against 40 GiB, and decoding against transformers' generate (25 ms a token).
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { configOf, tokenizerOf } from '../scripts/lib/checkpoint-shapes.ts'
import { makeScene, sceneExample } from '../src/data/index.ts'
import { generate, type Loaded, Prompter, parseSa2VAConfig, Sa2VA, Sa2VAFamily } from '../src/models/index.ts'
import { replaceTensor, tensorAt } from '../src/nn/index.ts'
import { sampleAndScore, step } from '../src/rl/index.ts'
import { Encoder, Learner, type RunConfig, resolveRun, runOf } from '../src/run/index.ts'
import { type CycleSample, type TaskKind, taskKinds } from '../src/tasks/index.ts'
import { cuda, noGrad, ones, randn, tidy } from '../src/tensor/index.ts'
import { chatTemplate, loadTokenizer } from '../src/text/index.ts'
import { type BenchRow, row } from './bench.ts'

const device = 'cuda:0'

function randomModel(): Loaded {
  const raw = configOf('4b', 'bfloat16')
  const cfg = parseSa2VAConfig(raw)
  const model = new Sa2VA(cfg)
  for (const slot of model.slots()) {
    const shape = [...tensorAt(slot).shape]
    const value = () => (shape.length === 1 ? ones(shape, { device }) : randn(shape, { device }).mul(0.02))
    replaceTensor(
      slot,
      noGrad(() => tidy(() => value().to('bfloat16'))),
    )
  }
  const dir = mkdtempSync(join(tmpdir(), 'roundtrip-4b-'))
  writeFileSync(join(dir, 'tokenizer.json'), JSON.stringify(tokenizerOf(cfg.llm.vocab_size)))
  writeFileSync(join(dir, 'config.json'), JSON.stringify(raw))
  return { dir, cfg, model, prompter: new Prompter(cfg, loadTokenizer(dir), chatTemplate(cfg.template)) }
}

/** With random weights no answer holds [SEG]; the first token of the greedy answer takes its part, so that every phase runs. */
function standInForSeg(loaded: Loaded, id: number): Loaded {
  const { prompter } = loaded
  const renamed = new Proxy(prompter, {
    get: (target, key) => {
      if (key === 'segId') return id
      const value = Reflect.get(target, key, target) as unknown
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
  return { ...loaded, prompter: renamed }
}

function timed<T>(name: string, seconds: Record<string, number>, fn: () => T): T {
  cuda.synchronize()
  const from = performance.now()
  const out = fn()
  cuda.synchronize()
  seconds[name] = (seconds[name] ?? 0) + (performance.now() - from) / 1000
  return out
}

export async function run(): Promise<BenchRow[]> {
  if (cuda.count() === 0) throw new Error('this bench needs a CUDA device')
  const config = resolveRun({
    model: 'random',
    dataPath: 'scenes:1',
    maxTiles: 1,
    rl: { numGenerations: 4, maxCompletionLength: 128 },
    loop2: { action: 'both' },
  })
  let loaded = randomModel()
  const example = sceneExample(makeScene(1, 0, { size: 448 }))
  const seconds: Record<string, number> = {}
  let family = new Sa2VAFamily(loaded)
  const features = timed('encode', seconds, () => family.encode([family.prepare(example.image, { maxTiles: 1 })])[0]!)
  const prompt = loaded.prompter.segment(features, example.caption)
  const first = tidy(
    () =>
      generate(loaded.model, loaded.prompter.tokenizer, [prompt], { maxNewTokens: 2, stopStrings: [], segId: -1 })[0]!
        .ids[0]!,
  )
  loaded = standInForSeg(loaded, first)
  family = new Sa2VAFamily(loaded)
  const learner = new Learner(family, config)
  const encoder = new Encoder(family, config, { store: null })
  const items = encoder.items([example])
  const rows: BenchRow[] = []
  const decode = decodeTime(loaded, features)
  rows.push(row('decode, 4 rows, per token', decode, 25, 'ms'))
  const tasks = (taskKinds.cycle as TaskKind<RunConfig>).build(family, config)
  const bench = runOf(config, tasks, learner, encoder, {
    score: async (_task, groups) => ({
      rows: groups.map((g) => g.map((_, k) => ({ total: k / 4, parts: { rank: k / 4 }, counted: [], dropped: [] }))),
      metrics: {},
    }),
  })
  for (let number = 0; number < 2; number++) {
    cuda.resetPeak()
    for (const key of Object.keys(seconds)) if (key !== 'encode') delete seconds[key]
    cuda.synchronize()
    const from = performance.now()
    const batch = { draw: { seed: 0, step: number }, pieces: [items] }
    const groups = await sampleAndScore(bench, batch)
    cuda.synchronize()
    seconds['sample and answer, both loops'] = (performance.now() - from) / 1000
    const learnedFrom = performance.now()
    const report = await step(bench, { ...batch, groups }, 1e-5)
    cuda.synchronize()
    seconds['learn, both loops'] = (performance.now() - learnedFrom) / 1000
    if (number === 1) {
      const lengths = groups.map(
        (g) =>
          `${g.task.name}: ${g.samples.map((r) => r.ids.length).join(' ')} tokens, ${g.samples.filter((r) => (r as CycleSample).action).length} mask actions`,
      )
      console.error(lengths.join('; '), JSON.stringify(report.groupNorms))
    }
  }
  const total = Object.entries(seconds).reduce((n, [, s]) => n + s, 0)
  for (const [name, s] of Object.entries(seconds)) rows.push(row(name, s, null, 's'))
  rows.push(row('one step', total, null, 's'))
  rows.push(row('peak device memory', cuda.memory(0).peak / 2 ** 30, 40, 'GiB'))
  return rows
}

/** Milliseconds of one decoding step of 4 rows, the prefill and the capture taken out by difference. */
function decodeTime(loaded: Loaded, features: Parameters<Prompter['segment']>[0]): number {
  const prompt = loaded.prompter.segment(features, 'the red circle')
  const once = (tokens: number) => {
    cuda.synchronize()
    const from = performance.now()
    tidy(
      () =>
        generate(loaded.model, loaded.prompter.tokenizer, [prompt], {
          samples: 4,
          maxNewTokens: tokens,
          stopStrings: [],
          segId: -1,
        }).length,
    )
    cuda.synchronize()
    return performance.now() - from
  }
  once(16)
  return (once(144) - once(16)) / 128
}
