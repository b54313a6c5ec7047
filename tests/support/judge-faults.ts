// 4,000 pairs against a server that fails one request in five; prints the outcome as one line of JSON. It is a separate
// process because the promise hooks of a test runner would take most of the time.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { stream } from '../../src/core/index.ts'
import { judgeReward, meteorReward } from '../../src/rewards/builtin.ts'
import { JudgeConfig } from '../../src/rewards/config.ts'
import { Judge } from '../../src/rewards/judge/judge.ts'
import { scoreGroup } from '../../src/rewards/mix.ts'
import type { Answer } from '../../src/rewards/reward.ts'
import { type Asked, honest, type Reply, startServer } from './judge-server.ts'

const faults: readonly Reply[] = [
  'DROP',
  'HANG',
  { status: 429, headers: { 'retry-after': '0.002' } },
  { status: 429 },
  { status: 500 },
  { status: 503 },
  { raw: '{"choices": [{"message": {"content": "[\\"A\\"' },
  { raw: 'upstream connect error', type: 'text/plain' },
  { raw: '{"choices": []}' },
  { refusal: 'no' },
  'I am sorry, I cannot do that.',
  { status: 302, headers: { location: 'http://127.0.0.1:9/' } },
  { status: 400 },
]

const numGroups = 500
const perGroup = 8
const references = [
  'a red bicycle with a black seat',
  'a white dog with a green collar',
  'a blue truck with a yellow door',
]
const variants: Record<string, readonly string[]> = {
  bicycle: [
    'a red bicycle with a black seat',
    'a red bicycle',
    'one bicycle with a black seat',
    'a red bicycle with a seat',
  ],
  dog: ['a white dog with a green collar', 'a white dog', 'a dog', 'the white dog has a collar'],
  truck: ['a blue truck with a yellow door', 'a blue truck', 'a truck', 'a blue truck and a door'],
}

function captionsOf(reference: string, group: number): string[] {
  const texts = Object.entries(variants).find(([word]) => reference.includes(word))![1]
  // As late in training, a caption comes several times: twice in its group, and again in a later one. 1,000 are distinct.
  const name = (k: number) => Math.floor(group / 6) * texts.length + (k % texts.length)
  return Array.from({ length: perGroup }, (_, k) => `${texts[k % texts.length]} ${name(k)}`)
}

async function withJudge<T>(
  script: (asked: Asked, n: number) => Reply,
  body: (judge: Judge) => Promise<T>,
  timeoutMs = 1500,
): Promise<T> {
  const server = await startServer(script, false)
  const cacheDir = mkdtempSync(join(tmpdir(), 'roundtrip-faults-'))
  const fast = {
    retryBaseMs: 1,
    timeoutMs,
    breakerOpenMs: 20,
    maxConcurrency: 64,
    canaryRate: 0.02,
    ask: 'single',
  }
  const judge = new Judge(JudgeConfig.parse({ baseUrl: server.url, cacheDir, ...fast }), {})
  try {
    return await body(judge)
  } finally {
    judge.close()
    await server.close()
    rmSync(cacheDir, { recursive: true, force: true })
  }
}

/** The score of a caption without faults; the number at its end does not matter to an honest judge. */
async function honestScores(): Promise<Map<string, number>> {
  const out = new Map<string, number>()
  const scoreAll = async (judge: Judge) => {
    for (const reference of references) {
      for (const caption of captionsOf(reference, 0)) {
        const { score } = await judge.judge(reference, caption)
        out.set(caption.replace(/ \d+$/, ''), score!)
      }
    }
  }
  await withJudge(honest, scoreAll, 60_000)
  return out
}

export interface Outcome {
  /** Per group and row: judge, METEOR, total, dropped terms, and the judge's score without faults. */
  rows: {
    judge: number | null
    meteor: number | null
    total: number | null
    dropped: readonly string[]
    truth: number
  }[][]
  injected: number
  calls: number
  judged: number
  unjudged: number
}

async function scenario(): Promise<Outcome> {
  const truths = await honestScores()
  const groups = Array.from({ length: numGroups }, (_, g): Answer[] => {
    const reference = references[g % references.length]!
    return captionsOf(reference, g).map((caption, k) => ({ id: `${g}/${k}`, reference, caption }))
  })
  const random = stream('faults')
  let injected = 0
  const flaky = (asked: Asked): Reply => {
    if (random.uniform() >= 0.2) return honest(asked)
    injected++
    return random.pick(faults)
  }
  return withJudge(flaky, async (judge) => {
    // Each checklist is written before the pairs: a lost one would take a third of them with it.
    for (const reference of references)
      for (let tries = 0; tries < 20 && (await judge.judge(reference, reference)).score === null; tries++);
    const before = { judged: judge.stats.judged, unjudged: judge.stats.unjudged }
    const terms = [
      { reward: meteorReward('caption'), weight: 0.25 },
      { reward: judgeReward(judge, 'caption'), weight: 0.75 },
    ]
    const scored = await Promise.all(groups.map((group) => scoreGroup(terms, group)))
    const rows = scored.map((group, g) =>
      group.map(({ total, parts, dropped }, k) => {
        const truth = truths.get(groups[g]![k]!.caption!.replace(/ \d+$/, ''))!
        return { judge: parts.judge!, meteor: parts.meteor!, total, dropped, truth }
      }),
    )
    const { calls, judged, unjudged } = judge.stats
    return { rows, injected, calls, judged: judged - before.judged, unjudged: unjudged - before.unjudged }
  })
}

process.stdout.write(JSON.stringify(await scenario()))
