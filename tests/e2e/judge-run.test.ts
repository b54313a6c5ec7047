// A run with a judge on loopback and a reward of the user's own: what both are given, and what is logged and shown of them.
import assert from 'node:assert/strict'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { renderReport } from '../../src/dashboard/index.ts'
import { runInEngineThread } from '../../src/engine/index.ts'
import { train } from '../../src/host/index.ts'
import { JudgeConfig, JudgeStats, judgeMetrics } from '../../src/rewards/index.ts'
import type { Progress } from '../../src/run/index.ts'
import { readRun } from '../../src/tracking/index.ts'
import { type Asked, startServer } from '../support/judge-server.ts'
import { scratch } from '../support/runs.ts'

const folder = scratch('judge-run')
const seen = join(folder, 'seen.jsonl')
const module = join(folder, 'reward.mjs')
writeFileSync(
  module,
  `import { appendFileSync } from 'node:fs'
export const reward = {
  name: 'mine', range: [0, 1], doc: 'writes down what it was given',
  score({ id, step, unique, record, maskConfidence }) {
    const { image, ...rest } = record
    const first = image ? [...image.data.slice(0, 3)] : null
    appendFileSync(${JSON.stringify(seen)}, JSON.stringify({ id, step, unique, maskConfidence, first, ...rest }) + '\\n')
    return Number(id.split('#').at(-1)) / 10
  },
}
`,
)
after(() => rmSync(folder, { recursive: true, force: true }))

const steps = 2
const toyWork = new URL(`./toy-work.${import.meta.url.endsWith('.ts') ? 'ts' : 'js'}`, import.meta.url)
const model = (await runInEngineThread(toyWork, 'toyWork', join(folder, 'toy'))) as string
/** Every caption of a scene is of a thing of some kind: its second word; nothing in a scene has a wing or a door. */
function checklist(text: string): string {
  const positives = [{ part: null, attribute: 'kind', value: text.split(' ')[1] }]
  const negatives = ['wing', 'door'].map((name) => ({ name, plural: false, kind: 'part' }))
  return JSON.stringify({ object: 'thing', plural: false, positives, negatives })
}

/** Looks for the word a question is about; says yes to the thing and no to its parts. */
function answer({ user, text }: Asked): string {
  if (user.includes('Fill in this JSON')) return checklist(text)
  const value = /is "([^"]+)", or means/.exec(user)?.[1]
  const said =
    value !== undefined && text.includes(value) ? /or means the same/ : /does not mention the (thing\.|wing|door)/
  const pattern = value !== undefined || user.includes('speak of') ? said : /Yes/
  return user.split('\n').find((line) => /^[A-E]\. /.test(line) && pattern.test(line))?.[0] ?? '?'
}
const judge = await startServer(answer)
delete process.env.OPENAI_API_KEY
const progress: Progress[] = []
const result = await train(
  {
    model,
    output: join(folder, 'run'),
    dataPath: 'scenes:24',
    device: 'cpu',
    threads: 1,
    evalRecords: 0,
    batchSize: 2,
    maxSteps: steps,
    saveSteps: 0,
    checkGroups: false,
    data: { workers: 0 },
    lora: { rank: 4, alpha: 8 },
    rl: { numGenerations: 3, maxCompletionLength: 10 },
    rewards: {
      judgeLoop1: true,
      judgeLoop2: true,
      modules: [{ path: module, weight: 1 }],
      judge: { baseUrl: judge.url, model: 'words', cacheDir: join(folder, 'cache') },
    },
  },
  { onProgress: (event) => progress.push(event) },
)
await judge.close()
const run = readRun(join(folder, 'run'))

const judgeNames = Object.keys(judgeMetrics(new JudgeStats().state(JudgeConfig.parse({}), 0)))

const textsOf = (kind: Progress['kind']) => progress.filter((e) => e.kind === kind).map((e) => e.text ?? '')

test('the start-up lines name the terms of both loops and the judge that is asked', () => {
  const terms = (of: string) => `0.25 meteor of ${of} + 0.75 judge of ${of} + 1 ${module}`
  assert.ok(textsOf('phase').includes(`5 rewards loop1: ${terms('caption')}`), textsOf('phase').join('\n'))
  assert.ok(textsOf('note').includes(`  loop2: ${terms('captionPrime')}`), textsOf('note').join('\n'))
  assert.ok(textsOf('note').includes(`  judge: words at ${judge.url}, mode checklist, without a key`))
})

test('the result counts the captions that the judge scored, and a working judge causes no warning', () => {
  const { judged, unjudged } = { judged: 'judge/judged', unjudged: 'judge/unjudged' }
  const last = run.timing.filter((line) => line.t === 'step').at(-1)!.metrics!
  assert.ok(last[judged]! > 0)
  assert.deepEqual([result.judge?.scored, result.judge?.asked], [last[judged], last[judged]! + last[unjudged]!])
  assert.deepEqual(
    run.events.filter((e) => e.t === 'warning' && e.kind === 'judge'),
    [],
  )
})

test('every step logs all metrics of the judge, and the report has a curve of each', async () => {
  assert.equal(judgeNames.length, 21)
  const logged = run.timing.filter((line) => line.t === 'step').map((line) => line.metrics ?? {})
  assert.equal(logged.length, steps)
  for (const metrics of logged)
    for (const name of judgeNames) assert.equal(typeof metrics[name], 'number', `${name} of every step`)
  assert.ok(logged.at(-1)!['judge/calls']! >= logged[0]!['judge/calls']!, 'calls are counted over the run')
  assert.ok(logged[0]!['judge/calls']! > 0 && logged[0]!['judge/judged']! > 0, 'the judge was asked')
  const page = await renderReport(run)
  for (const name of judgeNames) assert.ok(page.includes(`>${name}<`), `the report shows ${name}`)
})

test('the judge counts in both loops, and mask confidence and the share of unique texts are logged', () => {
  const logged = run.events.filter((e) => e.t === 'step').map((e) => e.metrics ?? {})
  assert.equal(logged.length, steps)
  for (const metrics of logged)
    for (const loop of ['loop1', 'loop2']) {
      for (const part of ['judge', 'meteor', 'mine'])
        assert.ok(`${loop}/rewards/${part}/mean` in metrics, `${loop} has ${part}`)
      for (const name of ['mask_confidence/iou', 'mask_confidence/object', 'completions/unique']) {
        const value = metrics[`${loop}/${name}`]!
        assert.ok(value > 0 && value <= 1, `${loop}/${name} is ${value}`)
      }
    }
})

interface Given {
  id: string
  step: number
  unique: number
  first: number[] | null
  columns: Record<string, unknown>
  maskConfidence: { iou: number; object: number } | null
}

test("a reward of the user's own gets step, picture, columns, confidence and the share of unique texts", () => {
  const given = readFileSync(seen, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Given)
  assert.equal(given.length, steps * 2 * 2 * 3)
  assert.deepEqual(new Set(given.map((g) => g.step)), new Set([1, 2]))
  for (const { id, first, columns, unique } of given) {
    assert.equal(first?.length, 3, `${id} has a picture`)
    assert.ok(Array.isArray(columns.objects), `${id} has the columns of its record`)
    assert.ok([1 / 3, 2 / 3, 1].includes(unique), `${unique} of three texts`)
  }
  assert.ok(given.some((g) => g.maskConfidence !== null && g.maskConfidence.iou > 0))
})
