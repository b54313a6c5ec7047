// Every logged number is over all processes. Runs of 1, 2 and 4 ranks in one process log the same: both tasks, gradient accumulation,
// filtered groups, captions without a score, a judge on loopback, and a stop between two steps.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { alone, type World } from '../../src/distributed/index.ts'
import { type Answer, type OpenRewards, openRewards, scoreGroup } from '../../src/rewards/index.ts'
import { type Host, type RunConfig, type RunInput, resolveRun, train } from '../../src/run/index.ts'
import { type TaskKind, taskKinds } from '../../src/tasks/index.ts'
import { honest, startServer } from '../support/judge-server.ts'
import { hostOf, makeToy, scratch, toyRun } from '../support/runs.ts'
import { worldsTogether } from '../support/worlds.ts'

const folder = scratch('all-metrics')
const toy = makeToy(join(folder, 'toy'))
const assets = join(import.meta.dirname, '../../assets/points-miniature')
/** Some captions get no score: their reply has no grade. */
const server = await startServer((asked) => (asked.text.length % 2 === 0 ? 'no idea' : honest(asked)))
after(async () => {
  await server.close()
  rmSync(folder, { recursive: true, force: true })
})

const common: Partial<RunInput> = {
  ...{ batchSize: 2, maxSteps: 2, saveSteps: 0, evalRecords: 2, evalBatch: 1, checkGroups: false },
  optim: { learningRate: 1e-3, adamEpsilon: 1e-2 }, // an update does not blow rounding up to its sign
}
const rl = { numGenerations: 2, gradientAccumulationSteps: 2, groupFilter: true, maxResampleTimes: 1 }

const configs: Record<'cycle' | 'points', (output: string) => RunConfig> = {
  cycle: (output) =>
    toyRun(toy, output, {
      ...common,
      rl: { ...rl, maxCompletionLength: 6 },
      rewards: { judgeLoop1: true, judge: { baseUrl: server.url, mode: 'number', onUnavailable: 'skip' } },
    }),
  points: (output) =>
    resolveRun({
      ...{ task: 'points', model: join(assets, 'policy'), output, device: 'cpu', threads: 1, ...common },
      ...{ dataPath: 'neighbours:60', tensorboard: false, lora: { rank: 4, alpha: 8 } },
      data: { workers: 0, evalFraction: 0.1 },
      points: { sam: join(assets, 'sam2'), imageSize: 112, wording: 'short', keepEasy: null, maxPoints: 1 },
      rl: { ...rl, maxCompletionLength: 10, beta: 0 },
    }),
}

const isFlat = (record: string) => record.charCodeAt(record.length - 1) % 2 === 0

/** Every second record or so has equal rewards, so that its group is filtered. */
const spread = ({ id }: Answer) => {
  const at = id.lastIndexOf('#')
  return isFlat(id.slice(0, at)) ? 0.5 : (1 + Number(id.slice(at + 1))) / 10
}

/** The rewards of the run with their judge, each rank with a separate cache; a rank stops after `last` steps. */
async function hostOfRank(config: RunConfig, world: World, last: number): Promise<{ host: Host; open: OpenRewards }> {
  const cacheDir = join(config.output, `judge-${world.rank}`)
  const kind = taskKinds[config.task as 'cycle'] as TaskKind<RunConfig>
  const rewards = { ...config.rewards, judge: { ...config.rewards.judge, cacheDir } }
  const open = await openRewards(rewards, kind.rewards(config).tasks)
  let done = 0
  const score: Host['score'] = async (task, groups) => {
    const { terms, options } = open.tasks[task]!
    const scored = await Promise.all(groups.map((group) => scoreGroup(terms, group, options)))
    const rows = scored.map((group, i) =>
      group.map((row, k) => {
        const own = spread(groups[i]![k]!)
        return { ...row, parts: { ...row.parts, own }, total: row.total === null ? null : own }
      }),
    )
    return { rows, judge: open.judgeState() }
  }
  const yieldToLoop = async () => void done++
  return { host: hostOf(undefined, { score, yieldToLoop, stopping: () => done === last }), open }
}

interface Line {
  t: string
  step: number
  metrics: Record<string, number>
}

interface Logged {
  steps: Line[]
  evals: Line[]
  timing: Line[]
  samples: Record<string, unknown>[]
  /** Name and bytes of each kept image. */
  images: [string, string][]
  asked: number
}

/** Two starts: the second resumes after the first step. */
async function logged(task: 'cycle' | 'points', size: number): Promise<Logged> {
  const config = configs[task](join(folder, `${task}-${size}`))
  const before = server.asked.length
  for (const last of [1, 2]) {
    const worlds = size === 1 ? [alone] : worldsTogether(size)
    const hosts = await Promise.all(worlds.map((world) => hostOfRank(config, world, last)))
    await Promise.all(worlds.map((world, i) => train(config, hosts[i]!.host, undefined, world)))
    for (const { open } of hosts) open.close()
  }
  const read = (file: string) =>
    readFileSync(join(config.output, file), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Line)
  const events = read('events.jsonl')
  return {
    steps: events.filter(({ t }) => t === 'step'),
    evals: events.filter(({ t }) => t === 'eval'),
    timing: read('timing.jsonl').filter(({ t }) => t === 'step'),
    samples: read('samples.jsonl') as unknown as Record<string, unknown>[],
    images: readdirSync(join(config.output, 'images')).map((name) => [name, readFileSync(join(config.output, 'images', name), 'base64')]), // biome-ignore format: one line
    asked: server.asked.length - before,
  }
}

/** Sums over rows that every process has in the order of one. */
const inOneOrder = /\/(rewards?(\/|_|$)|unscored|frac_reward|completions\/|points_per_output)|_rate$/

function assertSame(found: Line, wanted: Line, what: string): void {
  assert.deepEqual(Object.keys(found.metrics).sort(), Object.keys(wanted.metrics).sort(), what)
  for (const [name, value] of Object.entries(wanted.metrics)) {
    const got = found.metrics[name]!
    const exact = found.step === 1 && inOneOrder.test(name)
    const off = Math.abs(got - value)
    assert.ok(exact ? Object.is(got, value) : off <= 1e-6 * (1 + Math.abs(value)), `${what} ${name}: ${got}, ${value}`)
  }
}

/** Names of the timing file that only several processes have. */
const ofSeveral = ['ranks/sample_mean', 'ranks/sample_slowest', 'wait/learn', 'wait/sample']
/** Caches are of one process, so that several may ask again what one knows; a connection that was closed meanwhile is tried again. */
const ofCaches = /^judge\/(calls|retries|cache_hit|tokens_|cost|latency_|failures|unparsed)/

for (const task of ['cycle', 'points'] as const)
  test(`${task}: 1, 2 and 4 processes log the same names and numbers, before and after a resume`, async () => {
    const one = await logged(task, 1)
    assert.equal(one.steps.length, 2)
    const kept = one.samples.filter(({ loop }) => loop !== 'loop1') // there most captions of a group may be without a score
    assert.ok(kept.length > 0 && kept.every(({ id }) => !isFlat(String(id))), 'groups without spread were filtered')
    for (const size of [2, 4]) {
      const what = `${task}, ${size} processes`
      const several = await logged(task, size)
      const said = (rows: Logged['samples']) => rows.map(({ step, loop, id, k, text, total }) => ({ step, loop, id, k, text, total })) // biome-ignore format: one line
      assert.deepEqual(said(several.samples), said(one.samples), what)
      assert.deepEqual(several.images.sort(), one.images.sort(), `${what}, images`)
      for (const [i, line] of one.steps.entries()) assertSame(several.steps[i]!, line, `${what}, step ${i + 1}`)
      assert.deepEqual(several.evals[0], one.evals[0], `${what}, evaluation`)
      for (const [i, { metrics }] of one.timing.entries()) {
        const found = several.timing[i]!.metrics
        assert.deepEqual(Object.keys(found).sort(), [...Object.keys(metrics), ...ofSeveral].sort(), what)
        for (const name of Object.keys(metrics).filter((key) => key.startsWith('judge/') && !ofCaches.test(key)))
          assert.ok(Math.abs(found[name]! - metrics[name]!) < 1e-9, `${what} ${name}: ${found[name]}, ${metrics[name]}`)
      }
      const count = (name: string) => several.timing.reduce((sum, { metrics }) => sum + (metrics[name] ?? 0), 0)
      assert.equal(count('judge/calls') - count('judge/retries'), several.asked, `${what}: calls that the server saw`)
    }
    const judged = (name: string) => one.timing.some(({ metrics }) => (metrics[`judge/${name}`] ?? 0) > 0)
    if (task === 'cycle') assert.deepEqual([judged('judged'), judged('unjudged')], [true, true])
  })
