// What the key may change: who is let in. It never changes a score, and no form of it reaches a file, a verdict or an error.
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { type Asked, honest, type Reply, startServer } from '../../../tests/support/judge-server.ts'
import { sha256 } from '../../core/index.ts'
import { JudgeConfig } from '../config.ts'
import { Judge } from './judge.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-judge-key-'))
after(() => rmSync(folder, { recursive: true, force: true }))
let folders = 0
const reference = 'a red bicycle with a black seat'
const fast = { enabled: true, retries: 0, retryBaseMs: 1, canaryRate: 0, breakerFailures: 1000 }

async function withKey<T>(
  key: string | undefined,
  script: (asked: Asked, n: number) => Reply,
  settings: object,
  body: (judge: Judge, asked: readonly Asked[], dir: string) => Promise<T>,
): Promise<T> {
  const server = await startServer(script)
  const cacheDir = join(folder, `${folders++}`)
  const config = JudgeConfig.parse({ baseUrl: server.url, cacheDir, ...fast, ...settings })
  const judge = new Judge(config, { OPENAI_API_KEY: key })
  try {
    return await body(judge, server.asked, config.cacheDir)
  } finally {
    judge.close()
    await server.close()
  }
}

const dummies = [undefined, 'EMPTY', '1', '0', 'a', 'A', 'x', 'B', '"', '10', 'Yes', 'bicycle', ':']

test('a score does not depend on the key, however short it is', async () => {
  for (const key of dummies) {
    const grade = await withKey(
      key,
      () => '10',
      { mode: 'number' },
      async (judge, asked) => {
        const { score } = await judge.judge(reference, 'a bicycle')
        assert.equal(asked[0]!.authorization, `Bearer ${key ?? 'none'}`)
        return score
      },
    )
    assert.equal(grade, 1, `number, key ${key}`)
    for (const ask of ['perQuestion', 'single']) {
      const score = await withKey(
        key,
        honest,
        { ask },
        async (judge) => (await judge.judge(reference, 'a red bicycle')).score,
      )
      assert.equal(score, 0.75, `${ask}, key ${key}`)
    }
  }
})

test('a key that the reply itself contains does not change the grade', async () => {
  const key = 'Grade: 10'.replace(' ', '')
  const score = await withKey(
    key,
    () => key,
    { mode: 'number' },
    async (j) => (await j.judge(reference, 'a seat')).score,
  )
  assert.equal(score, 1)
})

test('grades of a cache that an older version wrote are asked again', async () => {
  const dir = join(folder, `${folders++}`)
  const model = JudgeConfig.parse({}).model
  const old = sha256(JSON.stringify(['roundtrip-judge-1', model, 'grade', reference, 'a bicycle']))
  await withKey(
    'EMPTY',
    () => '10',
    { mode: 'number', cacheDir: dir },
    async (judge, asked) => {
      const line = (k: string) => `${JSON.stringify({ k, v: 0, model, date: '2026-01-01' })}\n`
      writeFileSync(join(dir, 'judge-7.jsonl'), line(old))
      assert.equal((await judge.judge(reference, 'another')).score, 1)
      assert.equal(asked.length, 1)
    },
  )
  await withKey(
    'EMPTY',
    () => '10',
    { mode: 'number', cacheDir: dir },
    async (judge, asked) => {
      assert.equal((await judge.judge(reference, 'another')).cached, true, 'entries of this version are used')
      assert.equal((await judge.judge(reference, 'a bicycle')).score, 1)
      assert.equal(asked.length, 1)
    },
  )
})

const key = 'sk-CanaryKEY0123/456+789abcdefXYZ'
const inHeader = Buffer.from(`Bearer ${key}`).toString('base64url')
const forms = [
  key.toLowerCase(),
  key.toUpperCase(),
  key.slice(0, -1),
  key.slice(0, 20),
  key.slice(12),
  key.slice(0, 8),
  Buffer.from(key).toString('base64'),
  inHeader,
  encodeURIComponent(key),
  `${key.slice(0, 10)}\u200b${key.slice(10)}`,
  [...key].reverse().join(''),
]
/** Pieces that would let a reader put the key together. */
const leaks = (text: string) => {
  const seen = text.toLowerCase()
  const sources = [key, ...forms.filter((form) => form !== inHeader), inHeader.slice(10)].map((form) =>
    form.toLowerCase(),
  )
  return sources.some((form) =>
    Array.from(form).some((_, i) => i + 8 <= form.length && seen.includes(form.slice(i, i + 8))),
  )
}

test('a server that writes the key back in any form gets it into no verdict, error or file', async () => {
  assert.ok(leaks(key.slice(3, 11)) && !leaks('401 Incorrect API key provided'))
  for (const form of forms) {
    const replies: Reply[] = [
      { status: 401, body: JSON.stringify({ error: { message: `bad key ${form}` } }) },
      { status: 500, body: `trace ${form}` },
      { status: 302, headers: { location: `http://127.0.0.1/${encodeURIComponent(form)}` } },
      { raw: `${form} is not JSON` },
      JSON.stringify({ object: `bicycle ${form}`, positives: [{ part: null, attribute: 'colour', value: 'red' }] }),
      JSON.stringify({ object: 'bicycle', positives: [{ part: form, attribute: 'colour', value: 'red' }] }),
    ]
    const seen = await withKey(
      key,
      (_, n) => replies[n % replies.length]!,
      { selfCheck: false },
      async (judge, asked, dir) => {
        const verdicts = []
        for (let i = 0; i < replies.length; i++) verdicts.push(await judge.judge(`${reference} ${i}`, `text ${i}`))
        const error = await judge.health().catch((e: Error) => `${e.message} ${e.stack}`)
        judge.flush()
        assert.ok(asked.length >= replies.length && asked.every((a) => a.authorization === `Bearer ${key}`))
        const files = readdirSync(dir).map((name) => readFileSync(join(dir, name), 'utf8'))
        return [...verdicts.map((v) => JSON.stringify(v)), String(error), judge.stats.lastFailure ?? '', ...files]
      },
    )
    assert.ok(
      seen.some((text) => text.includes('[key]')),
      form,
    )
    for (const text of seen) assert.ok(!leaks(text), text)
  }
})

test('a key that no header can carry is rejected without being shown', () => {
  for (const bad of ['two words', 'line\nbreak', 'schl\u00fcssel-123', 'nul\u0000l'])
    assert.throws(
      () => new Judge(JudgeConfig.parse({ cacheDir: join(folder, 'bad') }), { OPENAI_API_KEY: bad }),
      (error: Error) =>
        /OPENAI_API_KEY: expected a key of printable ASCII/.test(error.message) && !error.message.includes(bad),
    )
})

/** A server that never ends its reply. */
async function endless(status: number) {
  const paths: string[] = []
  let sent = 0
  const server = createServer((request, response) => {
    paths.push(request.url ?? '')
    response.writeHead(status, { 'content-type': 'application/json' })
    const block = 'A'.repeat(1 << 18)
    const more = () => {
      for (let room = true; room && !response.destroyed; sent += block.length) room = response.write(block)
    }
    response.on('drain', more).on('error', () => undefined)
    more()
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const close = () =>
    new Promise<void>((done) => {
      server.close(() => done())
      server.closeAllConnections()
    })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, paths, sent: () => sent, close }
}

test('a reply without end is not read without end, and a slash at the end of the address changes nothing', async () => {
  for (const [status, reason] of [
    [200, /more than 1048576 bytes/],
    [401, /^401 A+$/],
  ] as const) {
    const server = await endless(status)
    const settings = { ...fast, baseUrl: `${server.url}/v1/`, mode: 'number', cacheDir: join(folder, `${folders++}`) }
    const judge = new Judge(JudgeConfig.parse(settings), {})
    try {
      const verdict = await judge.judge(reference, 'a bicycle')
      assert.equal(verdict.score, null)
      assert.match(verdict.reason ?? '', reason)
      assert.ok((verdict.reason ?? '').length <= 300)
      assert.deepEqual(server.paths, ['/v1/chat/completions'])
      assert.ok(server.sent() < 64 << 20, `${server.sent()} bytes`)
    } finally {
      judge.close()
      await server.close()
    }
  }
})
