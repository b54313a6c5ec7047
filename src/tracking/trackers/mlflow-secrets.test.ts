// What an MLflow server may do with the token or the password that it was sent: nothing of it comes back into a run folder.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterEach, test } from 'node:test'
import { config, newFolder } from '../../../tests/support/tracked-run.ts'
import { readRun } from '../run-reader.ts'
import { RunWriter } from '../run-writer.ts'

const before = { ...process.env }
afterEach(() => {
  for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name]
})

type Handler = (authorization: string, response: ServerResponse, path: string) => void

async function withServer(answer: Handler, use: (url: URL, asked: () => number) => Promise<void>): Promise<void> {
  let asked = 0
  const server = createServer((request, response) => {
    asked++
    request.resume().on('end', () => answer(request.headers.authorization ?? '', response, request.url ?? ''))
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  try {
    await use(new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`), () => asked)
  } finally {
    server.closeAllConnections()
    server.close()
  }
}

const warningsOf = (dir: string) => readRun(dir).events.flatMap((e) => (e.t === 'warning' ? [e.text] : []))

/** A run of one step that is open until the tracker's failure is in its log, or for a while. */
async function track(dir: string, fails = true): Promise<void> {
  const writer = RunWriter.create(dir, { config, environment: {}, reportTo: ['mlflow'] })
  writer.step(1, { loss: 1 })
  for (let tries = 0; fails && tries < 4000 && warningsOf(dir).length === 0; tries++)
    await new Promise((done) => setTimeout(done, 25))
  writer.stop(1, 'done')
  await writer.close()
}

/** Every text that a run left. */
function textsOf(dir: string): string[] {
  const names = readdirSync(dir, { recursive: true }).map((name) => join(dir, String(name)))
  return names.filter((path) => statSync(path).isFile()).map((path) => readFileSync(path, 'latin1'))
}

const token = 'SECRETmlf/TOKEN+12345'
const base64 = (text: string) => Buffer.from(text).toString('base64')

/** Pieces of 8 characters of the secrets, in small letters. */
function leaks(text: string, secrets: readonly string[]): boolean {
  const seen = text.toLowerCase()
  const pieces = (s: string) => Array.from({ length: Math.max(0, s.length - 7) }, (_, i) => s.slice(i, i + 8))
  return secrets.flatMap((s) => pieces(s.toLowerCase())).some((piece) => seen.includes(piece))
}

const echoes: Record<string, (authorization: string) => [status: number, body: string]> = {
  'the header': (a) => [500, JSON.stringify({ error_code: 'X', message: `bad header Authorization: ${a}` })],
  'the header in small letters': (a) => [403, a.toLowerCase()],
  'the header in base64': (a) => [500, base64(a)],
  'the header URL-encoded': (a) => [401, encodeURIComponent(a)],
  'the header cut': (a) => [500, a.slice(0, -1)],
  'the header after 190 characters': (a) => [500, `${'x'.repeat(190)}${a}`],
  'a reply that is not JSON': (a) => [200, a.split(' ').at(-1)!],
  'the secret as the id of the run': (a) => [
    200,
    JSON.stringify({ experiment_id: '5', run: { info: { run_id: a.split(' ').at(-1) } } }),
  ],
}

for (const [name, echo] of Object.entries(echoes))
  test(`${name}, written back, is in no file of the run`, async () => {
    await withServer(
      (authorization, response) => {
        const [status, body] = echo(authorization)
        response.writeHead(status).end(body)
      },
      async (url, asked) => {
        process.env.MLFLOW_TRACKING_URI = url.href
        process.env.MLFLOW_TRACKING_TOKEN = token
        const byToken = newFolder()
        await track(byToken)
        delete process.env.MLFLOW_TRACKING_TOKEN
        process.env.MLFLOW_TRACKING_URI = Object.assign(new URL(url), { username: 'me', password: 'pass-word-77' }).href
        const byPassword = newFolder()
        await track(byPassword)
        assert.ok(asked() > 2)
        const login = base64('me:pass-word-77')
        const secrets = [token, base64(token), 'pass-word-77', login, base64(login)]
        for (const dir of [byToken, byPassword]) {
          assert.match(warningsOf(dir).join(), /^mlflow: /, 'the failure is reported')
          for (const text of textsOf(dir)) assert.ok(!leaks(text, secrets), text.slice(0, 400))
        }
      },
    )
  })

test('a reply is redacted before it is cut, so that no beginning of the token is left at its end', async () => {
  const echo: Handler = (authorization, response) =>
    void response.writeHead(500).end(`${'x'.repeat(184)}${authorization}`)
  await withServer(echo, async (url) => {
    process.env.MLFLOW_TRACKING_URI = url.href
    process.env.MLFLOW_TRACKING_TOKEN = token
    const dir = newFolder()
    await track(dir)
    assert.match(warningsOf(dir)[0] ?? '', /x{184}Bearer \[key\]$/)
  })
})

test('a reply without end is read up to a limit', async () => {
  let sent = 0
  const block = 'A'.repeat(1 << 18)
  const flood: Handler = (_, response) => {
    response.writeHead(500)
    const more = () => {
      for (let room = true; room && !response.destroyed; sent += block.length) room = response.write(block)
    }
    response.on('drain', more).on('error', () => undefined)
    more()
  }
  await withServer(flood, async (url, asked) => {
    process.env.MLFLOW_TRACKING_URI = url.href
    const dir = newFolder()
    await track(dir)
    assert.ok(sent < asked() * (32 << 20), `${sent} bytes in ${asked()} replies`)
    assert.match(warningsOf(dir)[0] ?? '', /^mlflow: experiments\/get-by-name: 500 A+$/)
  })
})

test('the server that a run folder names is not called', async () => {
  const fine: Handler = (_, response, path) =>
    void response.end(
      JSON.stringify(path.includes('runs/create') ? { run: { info: { run_id: 'r' } } } : { experiment_id: '5' }),
    )
  const dir = newFolder()
  process.env.MLFLOW_TRACKING_TOKEN = token
  await withServer(fine, async (url) => {
    process.env.MLFLOW_TRACKING_URI = url.href
    await track(dir, false)
    assert.ok(existsSync(join(dir, 'mlflow.json')))
    await withServer(fine, async (stranger, asked) => {
      const server = `${stranger.origin}/api/2.0/mlflow`
      writeFileSync(join(dir, 'mlflow.json'), JSON.stringify({ server, run_id: 'r', sent: 1 }))
      const again = RunWriter.resume(dir, 1, undefined, { reportTo: ['mlflow'] })
      again.step(2, { loss: 2 })
      await again.close()
      assert.equal(asked(), 0)
    })
  })
})
