import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import {
  type Asked,
  honest,
  type Reply,
  type ScriptedServer,
  startServer,
} from '../../../tests/support/judge-server.ts'
import { judgeReward, meteorReward } from '../builtin.ts'
import { JudgeConfig } from '../config.ts'
import { scoreGroup } from '../mix.ts'
import type { Answer } from '../reward.ts'
import { Judge } from './judge.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-judge-'))
after(() => rmSync(folder, { recursive: true, force: true }))
let folders = 0

const key = 'sk-test-1234567890-secret'
const reference = 'a red bicycle with a black seat'

interface Bench {
  server: ScriptedServer
  judge: Judge
  dir: string
}

type Settings = Partial<Parameters<typeof JudgeConfig.parse>[0] & object>

/** A server, a judge that asks it, and both gone afterwards. */
async function withJudge(
  script: (asked: Asked, n: number) => Reply | Promise<Reply>,
  settings: Settings,
  body: (bench: Bench) => Promise<void>,
): Promise<void> {
  const server = await startServer(script)
  const dir = (settings as { cacheDir?: string }).cacheDir ?? join(folder, `${folders++}`)
  const fast = { retryBaseMs: 1, timeoutMs: 60_000, breakerOpenMs: 50, canaryRate: 0, breakerFailures: 1000 }
  const config = JudgeConfig.parse({ enabled: true, baseUrl: server.url, ...fast, ...settings, cacheDir: dir })
  const judge = new Judge(config, { OPENAI_API_KEY: key })
  try {
    await body({ server, judge, dir })
  } finally {
    judge.close()
    await server.close()
  }
}

const numbers = { mode: 'number' }

test('a judge that may take months is waited for', async () => {
  const later = async (asked: Asked): Promise<Reply> => {
    await new Promise((done) => setTimeout(done, 20))
    return honest(asked)
  }
  await withJudge(later, { ...numbers, timeoutMs: 2 ** 40 }, async ({ judge }) => {
    assert.equal((await judge.judge(reference, reference)).score, 0.7)
  })
})

test('a caption that says what the reference says gets 1, in both ways of asking', async () => {
  for (const ask of ['perQuestion', 'single']) {
    await withJudge(honest, { ask }, async ({ judge }) => {
      const verdict = await judge.judge(reference, 'The red bicycle has a black seat.')
      assert.equal(verdict.score, 1)
      assert.equal(verdict.tally?.recognised, true)
      assert.deepEqual(verdict.flags, [])
    })
  }
})

test('wrong, missing and invented attributes cost what the checklist says', async () => {
  await withJudge(honest, {}, async ({ judge }) => {
    // Two positives (bicycle colour, seat colour) and two negatives (collar, door).
    const raw = async (text: string) => (await judge.judge(reference, text)).tally?.raw
    assert.equal(await raw('a red bicycle'), (1 + 0 + 1 + 1) / 4)
    assert.equal(await raw('a blue bicycle with a black seat'), (-1 + 1 + 1 + 1) / 4)
    assert.equal(await raw('a red bicycle with a seat'), (1 + 0.5 + 1 + 1) / 4)
    assert.equal(await raw('a red bicycle with a collar and a door'), (1 + 0 - 1 - 1) / 4)
    // Not recognised: nothing positive counts, so silence about what is absent earns nothing.
    assert.equal(await raw('something'), 0)
    assert.equal((await judge.judge(reference, 'a dog with a collar')).score, 0)
  })
})

test('an empty caption scores 0 without a call', async () => {
  await withJudge(honest, {}, async ({ judge, server }) => {
    assert.equal((await judge.judge(reference, ' \u200b\n ')).score, 0)
    assert.equal(server.asked.length, 0)
  })
})

test('the number mode reads one grade', async () => {
  await withJudge(
    () => 'Grade: 8.5',
    numbers,
    async ({ judge }) => {
      assert.equal((await judge.judge(reference, 'a bicycle')).score, 0.85)
    },
  )
})

test('a second run over the same texts makes no request', async () => {
  const cacheDir = join(folder, 'shared')
  const texts = ['a red bicycle', 'a blue bicycle', 'a red bicycle', 'a dog']
  let first: (number | null)[] = []
  await withJudge(honest, { cacheDir }, async ({ judge, server }) => {
    first = (await Promise.all(texts.map((t) => judge.judge(reference, t)))).map((v) => v.score)
    // Checklist, self-check of 5 questions, 5 questions for each of 3 distinct captions.
    assert.equal(server.asked.length, 1 + 5 + 15)
  })
  await withJudge(honest, { cacheDir }, async ({ judge, server }) => {
    const verdicts = await Promise.all(texts.map((t) => judge.judge(reference, t)))
    assert.deepEqual(
      verdicts.map((v) => v.score),
      first,
    )
    assert.ok(verdicts.every((v) => v.cached))
    assert.equal(server.asked.length, 0)
    assert.equal(judge.metrics()['judge/cache_hit'], 1)
  })
  await withJudge(honest, { cacheDir, model: 'another' }, async ({ judge, server }) => {
    await judge.judge(reference, 'a red bicycle')
    assert.ok(server.asked.length > 0, 'another model is another judge')
  })
})

test('the option order is the same for all captions of a group and differs between questions', async () => {
  await withJudge(honest, { selfCheck: false }, async ({ judge, server }) => {
    await Promise.all(['a red bicycle', 'a blue bicycle'].map((t) => judge.judge(reference, t)))
    const blocks = new Map<string, Set<string>>()
    for (const asked of server.asked.filter((a) => !a.user.includes('JSON'))) {
      const [question, ...options] = asked.user.split('\n').slice(3, -1)
      blocks.set(question!, (blocks.get(question!) ?? new Set()).add(options.join('\n')))
    }
    assert.equal(blocks.size, 5)
    for (const orders of blocks.values()) assert.equal(orders.size, 1)
  })
})

/** Behaviours that pass: the first request meets the fault, the next is answered. */
const passing: Record<string, Reply> = {
  'a dropped connection': 'DROP',
  'no reply in time': 'HANG',
  'a body that never ends': 'HANG_BODY',
  'status 500': { status: 500 },
  'status 503 with Retry-After': { status: 503, headers: { 'retry-after': '0.01' } },
  'status 429': { status: 429 },
  'status 408': { status: 408 },
  'half a JSON': { raw: '{"choices": [{"message": {"content": "9' },
  garbage: { raw: '<html>502</html>', type: 'text/html' },
  'no choices': { raw: '{"choices": []}' },
  'a choice without a message': { raw: '{"choices": [null]}' },
  'content that is not text': { raw: '{"choices": [{"message": {"content": 9}}]}' },
  'an empty body': { raw: '' },
  null: { raw: 'null' },
}
for (const [name, fault] of Object.entries(passing)) {
  // Short only where the timeout is what is tested: a busy machine must not make others of them.
  const timeoutMs = fault === 'HANG' || fault === 'HANG_BODY' ? 2000 : 60_000
  test(`${name} is tried again`, async () => {
    await withJudge(
      (_, n) => (n === 0 ? fault : '9'),
      { ...numbers, timeoutMs },
      async ({ judge, server }) => {
        assert.equal((await judge.judge(reference, 'a bicycle')).score, 0.9)
        assert.equal(server.asked.length, 2)
        assert.equal(judge.stats.retries, 1)
      },
    )
  })
  test(`${name} without end gives no score, never 0`, async () => {
    await withJudge(
      () => fault,
      { ...numbers, timeoutMs: timeoutMs === 2000 ? 60 : timeoutMs, retries: 2 },
      async ({ judge }) => {
        const verdict = await judge.judge(reference, 'a bicycle')
        assert.equal(verdict.score, null)
        assert.ok(verdict.reason)
        assert.equal(judge.stats.calls, 3)
      },
    )
  })
}

for (const status of [400, 401, 403, 404, 422]) {
  test(`status ${status} is not tried again and fails the health check`, async () => {
    await withJudge(
      () => ({ status }),
      numbers,
      async ({ judge, server }) => {
        assert.equal((await judge.judge(reference, 'a bicycle')).score, null)
        assert.equal(server.asked.length, 1)
        await assert.rejects(judge.health(), /judge: http.*expected a chat completion.*OPENAI_API_KEY/)
      },
    )
  })
}

test('a redirect is not followed, so the key goes nowhere else', async () => {
  const elsewhere = await startServer(() => '10')
  const location = `${elsewhere.url}/chat/completions`
  try {
    for (const status of [301, 302, 307, 308]) {
      await withJudge(
        () => ({ status, headers: { location } }),
        numbers,
        async ({ judge, server }) => {
          const verdict = await judge.judge(reference, 'a bicycle')
          assert.equal(verdict.score, null)
          assert.match(verdict.reason ?? '', /redirect/)
          assert.equal(server.asked.length, 1)
        },
      )
    }
    assert.equal(elsewhere.asked.length, 0)
  } finally {
    await elsewhere.close()
  }
})

test('a refusal is asked once more and then gives no score', async () => {
  for (const reply of [{ refusal: 'I will not' }, "I'm sorry, I cannot rate these 2 texts.", '', 'eleven', '11']) {
    await withJudge(
      () => reply,
      numbers,
      async ({ judge, server }) => {
        assert.equal((await judge.judge(reference, 'a bicycle')).score, null)
        assert.equal(server.asked.length, 2)
        assert.equal(judge.stats.unparsed, 1)
      },
    )
  }
  const refuse = (asked: Asked) => (asked.user.includes('JSON') ? honest(asked) : "I'm sorry, I cannot help with that.")
  await withJudge(refuse, { selfCheck: false }, async ({ judge }) => {
    assert.equal((await judge.judge(reference, 'a bicycle')).score, null)
  })
})

test('Retry-After holds all requests, not only the refused one', async () => {
  const times: number[] = []
  const script = (_: Asked, n: number): Reply => {
    times.push(performance.now())
    return n === 0 ? { status: 429, headers: { 'retry-after': '0.3' } } : '5'
  }
  await withJudge(script, { ...numbers, maxConcurrency: 1 }, async ({ judge }) => {
    const scores = await Promise.all(['a', 'b', 'c'].map((t) => judge.judge(reference, t)))
    assert.deepEqual(
      scores.map((s) => s.score),
      [0.5, 0.5, 0.5],
    )
    assert.ok(times[1]! - times[0]! >= 250, `${times[1]! - times[0]!} ms`)
  })
})

test('delays double and vary, and at most maxConcurrency requests are in flight', async () => {
  const times: number[] = []
  const failing = (): Reply => {
    times.push(performance.now())
    return { status: 500 }
  }
  await withJudge(failing, { ...numbers, retryBaseMs: 40 }, async ({ judge }) => {
    await judge.judge(reference, 'a')
    const gaps = times.slice(1).map((t, i) => t - times[i]!)
    for (const [i, gap] of gaps.entries()) assert.ok(gap >= 40 * 2 ** i * 0.8 - 2, `gap ${i}: ${gap}`)
  })
  const slow = () => new Promise<Reply>((resolve) => setTimeout(() => resolve('5'), 10))
  await withJudge(slow, { ...numbers, maxConcurrency: 3 }, async ({ judge, server }) => {
    await Promise.all(Array.from({ length: 20 }, (_, i) => judge.judge(reference, `a ${i}`)))
    assert.equal(server.peak, 3)
  })
})

test('a rate limit spaces the requests out', async () => {
  await withJudge(
    () => '5',
    { ...numbers, requestsPerMinute: 1200 },
    async ({ judge }) => {
      const start = performance.now()
      await Promise.all(Array.from({ length: 5 }, (_, i) => judge.judge(reference, `a ${i}`)))
      assert.ok(performance.now() - start >= 190)
    },
  )
})

test('after five failures in a row nothing is asked, then one probe decides', async () => {
  let broken = true
  const script = (): Reply => (broken ? { status: 500 } : '6')
  const settings = { ...numbers, retries: 0, breakerFailures: 5, breakerOpenMs: 3000, maxConcurrency: 1 }
  await withJudge(script, settings, async ({ judge, server }) => {
    const ask = async (t: string) => (await judge.judge(reference, t)).score
    for (let i = 0; i < 8; i++) assert.equal(await ask(`a ${i}`), null)
    assert.equal(server.asked.length, 5)
    await new Promise((resolve) => setTimeout(resolve, 3050))
    assert.deepEqual(await Promise.all([ask('b'), ask('c'), ask('d')]), [null, null, null])
    assert.equal(server.asked.length, 6, 'one probe')
    broken = false
    await new Promise((resolve) => setTimeout(resolve, 3050))
    assert.equal(await ask('e'), 0.6)
    assert.equal(await ask('f'), 0.6)
    assert.equal(judge.metrics()['judge/breaker_opened'], 2)
  })
})

const group = (...captions: string[]): Answer[] => captions.map((caption, i) => ({ id: `r${i}`, reference, caption }))

test('one caption that cannot be judged takes the judge from its whole group', async () => {
  const script = (asked: Asked): Reply => (asked.text.includes('unlucky') ? { status: 500 } : honest(asked))
  await withJudge(script, { retries: 0 }, async ({ judge }) => {
    const meteor = meteorReward('caption')
    const terms = [
      { reward: meteor, weight: 0.25 },
      { reward: judgeReward(judge, 'caption'), weight: 0.75 },
    ]
    const answers = group('a red bicycle', 'a blue bicycle', 'unlucky words', 'a seat')
    const rows = await scoreGroup(terms, answers)
    assert.deepEqual(
      rows.map((r) => r.total),
      await Promise.all(answers.map((a) => meteor.score(a))),
    )
    assert.ok(rows.every((r) => r.dropped[0] === 'judge'))
    assert.equal(rows[2]!.parts.judge, null)
    const skipped = await scoreGroup(terms, answers, { onUnavailable: 'skip' })
    assert.ok(skipped.every((r) => r.total === null))
    await assert.rejects(scoreGroup(terms, answers, { onUnavailable: 'stop' }), /onUnavailable is stop/)
    // The judge alone: METEOR replaces it.
    const alone = await scoreGroup([terms[1]!], answers)
    assert.deepEqual(
      alone.map((r) => r.total),
      rows.map((r) => r.total),
    )
  })
})

test('judging continues while the caller does something else', async () => {
  const slow = async (asked: Asked): Promise<Reply> => {
    await new Promise((resolve) => setTimeout(resolve, 20))
    return honest(asked)
  }
  await withJudge(slow, {}, async ({ judge, server }) => {
    const terms = [{ reward: judgeReward(judge, 'caption'), weight: 1 }]
    const pending = [group('a red bicycle'), group('a dog')].map((g) => scoreGroup(terms, g))
    assert.equal(pending.length, 2)
    const deadline = performance.now() + 600_000
    while (server.asked.length < 4 && performance.now() < deadline)
      await new Promise((resolve) => setTimeout(resolve, 5))
    assert.ok(server.asked.length >= 4, 'asked before anybody awaited')
    assert.deepEqual(
      (await Promise.all(pending)).map((rows) => rows[0]!.total),
      [0.75, 0],
    )
  })
})

test('a server that refuses response_format is asked without it', async () => {
  const script = (asked: Asked): Reply => (asked.hasSchema ? { status: 400 } : honest(asked))
  await withJudge(script, { selfCheck: false }, async ({ judge, server }) => {
    assert.equal((await judge.judge(reference, 'a red bicycle with a black seat')).score, 1)
    await judge.judge('a blue car', 'a car')
    assert.equal(server.asked.filter((a) => a.hasSchema).length, 1, 'probed once')
  })
})

test('a checklist in prose and code fences is found; one of lies is unjudgeable', async () => {
  const wrap = (asked: Asked): Reply => {
    const reply = honest(asked)
    return reply.startsWith('{') ? `Sure [1]! Here {it} is:\n\`\`\`json\n${reply}\n\`\`\`` : reply
  }
  await withJudge(wrap, {}, async ({ judge }) => assert.equal((await judge.judge(reference, reference)).score, 1))
  const lies = JSON.stringify({ object: 'bicycle', positives: [{ part: null, attribute: 'colour', value: 'purple' }] })
  await withJudge(
    () => lies,
    {},
    async ({ judge, server }) => {
      const verdict = await judge.judge(reference, reference)
      assert.equal(verdict.score, null)
      assert.match(verdict.reason ?? '', /no checkable attribute/)
      assert.deepEqual(
        server.asked.map((a) => a.temperature),
        [0, 0.3],
      )
      await judge.judge(reference, 'another')
      assert.equal(server.asked.length, 2, 'known to be unjudgeable')
    },
  )
  await withJudge(
    () => 'no idea',
    {},
    async ({ judge, server }) => {
      await judge.judge(reference, reference)
      await judge.judge(reference, reference)
      assert.equal(server.asked.length, 4, "a judge's failure is not kept against the reference")
    },
  )
})

test('the self-check drops a question that the reference itself fails', async () => {
  const script = (asked: Asked): Reply =>
    asked.user.includes('colour of the seat') && asked.text === reference ? 'nonsense' : honest(asked)
  await withJudge(script, {}, async ({ judge }) => {
    const verdict = await judge.judge(reference, 'one red bicycle')
    assert.equal(verdict.tally?.asked, 3)
  })
})

test('the key is in the request and in no file, log line, verdict or error, even when the server echoes it', async () => {
  const lines: string[] = []
  const { write } = process.stderr
  process.stderr.write = ((text: string) => lines.push(String(text)) > 0) as typeof write
  const seen: string[] = []
  try {
    const echo = (asked: Asked, n: number): Reply => {
      const said = asked.authorization ?? ''
      if (n % 3 === 0) return { status: 401, body: JSON.stringify({ error: { message: `bad key ${said}` } }) }
      if (n % 3 === 1) return { status: 302, headers: { location: `http://127.0.0.1/${key}` } }
      return JSON.stringify({ object: `bicycle ${key}`, positives: [{ part: key, attribute: 'colour', value: 'red' }] })
    }
    await withJudge(echo, { selfCheck: false }, async ({ judge, server, dir }) => {
      for (let i = 0; i < 9; i++)
        seen.push(JSON.stringify(await judge.judge(i < 6 ? reference : `${reference} ${i}`, `text ${i}`)))
      await judge
        .health()
        .catch((error: Error) => seen.push(`${error.message} ${error.stack} ${JSON.stringify(error)}`))
      await judge
        .health()
        .catch((error: Error) => seen.push(`${error.message} ${error.stack} ${JSON.stringify(error)}`))
      judge.flush()
      assert.ok(server.asked.every((a) => a.authorization === `Bearer ${key}`))
      for (const name of readdirSync(dir)) seen.push(readFileSync(join(dir, name), 'utf8'))
    })
  } finally {
    process.stderr.write = write
  }
  assert.ok(
    seen.some((s) => s.includes('[key]')),
    'the echo was met',
  )
  for (const text of [...seen, ...lines]) assert.ok(!text.includes(key) && !text.includes('secret'), text)
})

test('without a key the word none is sent, and counters carry tokens, cost and latency', async () => {
  const server = await startServer(() => '5')
  const priced = { costPerMillionIn: 10, costPerMillionOut: 100, canaryRate: 0 }
  const config = JudgeConfig.parse({ baseUrl: server.url, mode: 'number', cacheDir: join(folder, 'nokey'), ...priced })
  const judge = new Judge(config, {})
  try {
    await judge.judge(reference, 'a bicycle')
    assert.equal(server.asked[0]!.authorization, 'Bearer none')
    const m = judge.metrics()
    assert.deepEqual([m['judge/calls'], m['judge/tokens_in'], m['judge/tokens_out']], [1, 100, 2])
    assert.ok(Math.abs(m['judge/cost']! - 0.0012) < 1e-12)
    assert.ok(m['judge/latency_p50']! > 0 && m['judge/latency_p95']! >= m['judge/latency_p50']!)
  } finally {
    judge.close()
    await server.close()
  }
})

test('a verdict with unanswered questions is not cached: the next run asks again', async () => {
  const cacheDir = join(folder, 'incomplete')
  const text = 'a red bicycle with a black seat'
  let broken = ''
  const oneFails = (asked: Asked): Reply => {
    if (asked.user.includes('What does the text say of')) broken ||= asked.user.split('\n')[3]!
    return broken && asked.user.includes(broken) ? { status: 400 } : honest(asked)
  }
  await withJudge(oneFails, { cacheDir, selfCheck: false }, async ({ judge }) => {
    assert.notEqual((await judge.judge(reference, text)).score, null, 'one question of five may stay unanswered')
  })
  assert.notEqual(broken, '')
  await withJudge(honest, { cacheDir, selfCheck: false }, async ({ judge, server }) => {
    const verdict = await judge.judge(reference, text)
    assert.deepEqual([verdict.score, verdict.cached], [1, false])
    assert.ok(server.asked.length > 0)
  })
})
