import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { buildPage, target } from '../../scripts/build-page.mjs'
import { encodeRle, maskFromDense } from '../mask/index.ts'
import { type MaskRle, RunWriter, readRun } from '../tracking/index.ts'
import { allowedNames, contentPolicy } from './guard.ts'
import { startWatch, type WatchServer } from './server.ts'

const page = fileURLToPath(new URL('../../assets/watch', import.meta.url))
const png = Buffer.from('89504e470d0a1a0a', 'hex')
const servers: WatchServer[] = []
after(() => Promise.all(servers.map((server) => server.close())))

const mask = encodeRle(maskFromDense(Uint8Array.of(0, 1, 1, 0), 2, 2)) as unknown as MaskRle

function makeRun(folder: string, steps: number, text = 'plain'): RunWriter {
  const writer = RunWriter.create(folder, { config: { seed: 1, note: text, api_key: 'sk-hidden' }, environment: {} })
  writer.start({ tasks: [{ name: 'points', title: text }], total: steps })
  writer.eval(0, 'before', 4, { giou: { mean: 0.5, low: Number.NaN, high: 0.7 } })
  for (let step = 1; step <= steps; step++) {
    const value = step === 2 ? Number.NaN : step
    writer.step(step, { loss: value, 'points/reward_mean': 1, [text]: 3 }, { step_time: 0.5, 'seconds/learn': 0.25 })
    const shown = [
      { kind: 'text' as const, by: 'policy' as const, text },
      { kind: 'mask' as const, by: 'ema' as const, mask },
    ]
    const rest = { rewards: { iou: step / 10 }, total: step / 10, advantage: 0, logp: -1, length: 3, image: 'a.png' }
    writer.samples([{ step, loop: 'points', id: text, k: 0, shown, ...rest }])
  }
  writer.notice('odd', text, 3)
  return writer
}

async function serve(folder: string, more: { token?: string; address?: string } = {}): Promise<WatchServer> {
  const server = await startWatch({ folders: [folder], page, port: 0, address: '127.0.0.1', ...more })
  servers.push(server)
  return server
}

interface Answer {
  status: number
  text: string
  headers: Record<string, string | string[] | undefined>
}

/** Without fetch, which would tidy the path and refuse to set Host. */
function get(port: number, path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> {
  return new Promise((done, fail) => {
    const asked = request({ host: '127.0.0.1', port, path, method, headers }, (answer) => {
      let text = ''
      answer.setEncoding('latin1').on('data', (piece: string) => {
        text += piece
      })
      answer.on('end', () => done({ status: answer.statusCode ?? 0, text, headers: answer.headers }))
    })
    asked.on('error', fail)
    asked.end()
  })
}

const newFolder = () => mkdtempSync(join(tmpdir(), 'watch-'))

async function idOf(port: number): Promise<string> {
  for (;;) {
    const { runs } = JSON.parse((await get(port, '/api/runs')).text) as {
      runs: { id: string; samplesWhole: boolean }[]
    }
    if (runs[0]?.samplesWhole) return runs[0].id
    await new Promise((done) => setTimeout(done, 20))
  }
}

test('the committed page is what the build gives', async () => {
  for (const [name, bytes] of await buildPage()) assert.ok(readFileSync(join(target, name)).equals(bytes), name)
})

test('the server sends every number of the run and nothing secret', async () => {
  const root = newFolder()
  const folder = join(root, 'a')
  const writer = makeRun(folder, 5)
  writer.stop(5, 'done')
  writer.close()
  const { port } = await serve(root)
  const id = await idOf(port)
  const view = JSON.parse((await get(port, `/api/runs/${id}`)).text) as Record<string, unknown>
  assert.deepEqual([view.state, view.reason, view.step, view.total], ['ended', 'done', 5, 5])
  assert.deepEqual(view.tasks, [{ name: 'points', title: 'plain' }])
  assert.deepEqual(view.noticeKinds, [{ kind: 'odd', count: 3, first: 5, last: 5 }])
  assert.ok(JSON.stringify(view.config).includes('(not shown)') && !JSON.stringify(view).includes('sk-hidden'))
  const { series } = JSON.parse((await get(port, `/api/runs/${id}/series?name=loss&name=step_time`)).text) as {
    series: { steps: number[]; values: unknown[] }[]
  }
  assert.deepEqual(series[0]?.values, [1, 'NaN', 3, 4, 5])
  assert.deepEqual(series[1]?.values, [0.5, 0.5, 0.5, 0.5, 0.5])
  const csv = await get(port, `/api/csv?run=${id}&name=loss&name=step_time`)
  assert.equal(csv.text, 'step,loss,step_time\r\n1,1,0.5\r\n2,NaN,0.5\r\n3,3,0.5\r\n4,4,0.5\r\n5,5,0.5\r\n')
  const best = JSON.parse((await get(port, `/api/runs/${id}/samples?order=best&limit=2`)).text) as {
    count: number
    samples: { step: number; shown: { kind: string; path?: string }[] }[]
  }
  assert.deepEqual([best.count, best.samples.map((s) => s.step)], [5, [5, 4]])
  assert.match(best.samples[0]?.shown[1]?.path ?? '', /^M\d/)
  assert.match((await get(port, `/api/runs/${id}/samples?order=odd`)).text, /order: expected newest, oldest/)
  assert.equal((await get(port, `/api/runs/${id}/samples?from=x`)).status, 400)
  assert.equal(readRun(folder).problems.length, 0)
})

test('the CSV of several runs has a column for each, of those that have the metric', async () => {
  const folder = newFolder()
  makeRun(join(folder, 'a'), 2).close()
  makeRun(join(folder, 'b'), 3, 'only-b').close()
  const { port } = await serve(folder)
  const { runs } = JSON.parse((await get(port, '/api/runs')).text) as { runs: { id: string; name: string }[] }
  const [a, b] = ['a', 'b'].map((name) => runs.find((run) => run.name === name)!.id)
  const { text } = await get(port, `/api/csv?run=${a}&run=${b}&name=loss&name=only-b`)
  assert.equal(text.split('\r\n')[0], 'step,a: loss,b: loss,b: only-b')
  assert.equal(text.split('\r\n')[3]?.split(',')[1], '')
})

test('a cell that a spreadsheet would run is text', async () => {
  const folder = newFolder()
  makeRun(folder, 2, '=cmd|"x",1').close()
  const { port } = await serve(folder)
  const { text } = await get(port, `/api/csv?run=${await idOf(port)}&name=${encodeURIComponent('=cmd|"x",1')}`)
  assert.equal(text.split('\r\n')[0], `step,"'=cmd|""x"",1"`)
})

test('nothing outside the run folders is answered', async () => {
  const root = newFolder()
  const folder = join(root, 'run')
  makeRun(folder, 2).close()
  writeFileSync(join(root, 'secret.png'), png)
  mkdirSync(join(folder, 'images'))
  writeFileSync(join(folder, 'images', 'a.png'), png)
  writeFileSync(join(folder, 'images', 'page.png'), '<script>')
  symlinkSync('../../secret.png', join(folder, 'images', 'link.png'))
  symlinkSync('/etc', join(folder, 'images', 'etc'))
  const { port } = await serve(folder)
  const id = await idOf(port)
  assert.deepEqual((await get(port, `/api/runs/${id}/images/a.png`)).headers['content-type'], 'image/png')
  const outside = [
    'page.png',
    'link.png',
    'etc',
    'etc/passwd',
    '..',
    '../config.json',
    '..%2fconfig.json',
    '%2e%2e%2fconfig.json',
  ]
  outside.push('..%5cconfig.json', '..%252fconfig.json', '%00a.png', '.', '', '%2fetc%2fpasswd', '....//config.json')
  for (const name of outside) {
    const { status, text } = await get(port, `/api/runs/${id}/images/${name}`)
    assert.ok(status === 404 || status === 400, `${name}: ${status}`)
    assert.doesNotMatch(text, /root:|seed|PNG/, name)
  }
  const paths = [
    '/../../etc/passwd',
    '//etc/passwd',
    '/etc/passwd',
    '/page.js/../../secret.png',
    '/api/runs/../../../etc/passwd',
  ]
  paths.push(
    '/%2e%2e/%2e%2e/etc/passwd',
    '/api/runs/__proto__',
    '/api/csv?run=constructor',
    `/api/csv?run=${id}&run=x&name=loss`,
    '/api/csv',
    `/api/runs/${id}/events.jsonl`,
  )
  for (const path of paths) {
    const { status, text } = await get(port, path)
    assert.ok(status === 404 || status === 400, `${path}: ${status}`)
    assert.doesNotMatch(text, /root:|"t":/, path)
  }
})

test('foreign names, foreign pages and questions that would change something are refused', async () => {
  const folder = newFolder()
  makeRun(folder, 1).close()
  const { port } = await serve(folder)
  const own = `127.0.0.1:${port}`
  const refused: Record<string, string>[] = [
    { host: 'evil.example' },
    { host: `evil.example:${port}` },
    { host: '127.0.0.1.evil.example' },
    { host: own, origin: 'http://evil.example' },
    { host: own, origin: 'null' },
    { host: own, origin: `http://localhost:${port + 1}` },
    { host: own, 'sec-fetch-site': 'cross-site' },
  ]
  for (const headers of refused)
    assert.equal((await get(port, '/api/runs', headers)).status, 403, JSON.stringify(headers))
  for (const host of [own, `localhost:${port}`, 'localhost:9000', `[::1]:${port}`])
    assert.equal((await get(port, '/api/runs', { host })).status, 200, host)
  assert.equal((await get(port, '/api/runs', { host: own, origin: `http://${own}` })).status, 200)
  for (const method of ['POST', 'PUT', 'DELETE']) assert.equal((await get(port, '/api/runs', {}, method)).status, 405)
  for (const path of ['/', '/page.js', '/api/runs', '/nothing']) {
    const { headers } = await get(port, path)
    assert.equal(headers['content-security-policy'], contentPolicy, path)
    assert.equal(headers['x-content-type-options'], 'nosniff')
    assert.equal(headers['access-control-allow-origin'], undefined)
  }
  assert.doesNotMatch(contentPolicy, /unsafe|\*|https?:/)
})

test('with a token nothing is answered without it', async () => {
  const folder = newFolder()
  makeRun(folder, 1).close()
  const { port, url } = await serve(folder, { token: 'right-token-of-16' })
  assert.equal(new URL(url).search, '?token=right-token-of-16')
  for (const path of ['/', '/page.js', '/api/runs', '/api/live', '/?token=wrong', '/api/runs?token=right-token-of-16'])
    assert.equal((await get(port, path)).status, 401, path)
  const first = await get(port, '/?token=right-token-of-16')
  assert.equal(first.status, 303)
  const cookie = String(first.headers['set-cookie'])
  assert.match(cookie, /HttpOnly; SameSite=Strict/)
  assert.equal((await get(port, '/api/runs', { cookie: cookie.split(';')[0]! })).status, 200)
  assert.equal((await get(port, '/api/runs', { authorization: 'Bearer right-token-of-16' })).status, 200)
  assert.equal((await get(port, '/api/runs', { authorization: 'Bearer wrong' })).status, 401)
})

test('an empty or short token is rejected, and the printed address opens with any other', async () => {
  const folder = newFolder()
  makeRun(folder, 1).close()
  for (const token of ['', 'x', 'fifteen-letters'])
    await assert.rejects(serve(folder, { token }), /watch: --token: expected at least 16 characters/, token)
  const token = 'a+b&c d#e%2F?é=ü/'
  const { port, url } = await serve(folder, { token })
  assert.equal(new URL(url).searchParams.get('token'), token)
  const { pathname, search } = new URL(url)
  assert.equal((await get(port, pathname + search)).status, 303)
})

test('a cookie holds no token, and opens the server that gave it and no other of the same token', async () => {
  const folder = newFolder()
  makeRun(folder, 1).close()
  const token = 'one-token-for-two-pages'
  const [first, second] = [await serve(folder, { token }), await serve(folder, { token })]
  const sent = String((await get(first.port, `/?token=${token}`)).headers['set-cookie']).split(';')[0]!
  const value = sent.slice(sent.indexOf('=') + 1)
  const forms = [
    token,
    Buffer.from(token).toString('base64url'),
    createHash('sha256').update(token).digest('base64url'),
  ]
  for (const form of forms) assert.ok(!value.includes(form), form)
  const named = (port: number) => ({ cookie: `roundtrip_watch_${port}=${value}` })
  assert.equal((await get(first.port, '/api/runs', named(first.port))).status, 200)
  assert.equal((await get(second.port, '/api/runs', named(second.port))).status, 401)
  assert.equal((await get(first.port, '/api/runs', { authorization: `Bearer ${value}` })).status, 401)
  assert.equal((await get(first.port, `/?token=${value}`)).status, 401)
})

test('two pages with tokens on one host have separate cookies', async () => {
  const folder = newFolder()
  makeRun(folder, 1).close()
  const tokens = ['first-token-of-16-letters', 'second-token-of-16-letters']
  const pages = await Promise.all(tokens.map((token) => serve(folder, { token })))
  const cookies = await Promise.all(
    pages.map(
      async ({ port }, i) => String((await get(port, `/?token=${tokens[i]}`)).headers['set-cookie']).split(';')[0]!,
    ),
  )
  assert.notEqual(cookies[0]!.split('=')[0], cookies[1]!.split('=')[0])
  for (const { port } of pages) assert.equal((await get(port, '/api/runs', { cookie: cookies.join('; ') })).status, 200)
})

test('HEAD of the live stream takes no place from pages that listen', async () => {
  const folder = newFolder()
  makeRun(folder, 1).close()
  const { port } = await serve(folder)
  for (let i = 0; i < 70; i++) assert.equal((await get(port, '/api/live', {}, 'HEAD')).status, 200)
  const status = await new Promise((done, fail) => {
    const asked = request({ host: '127.0.0.1', port, path: '/api/live' }, (answer) => {
      done(answer.statusCode)
      asked.destroy()
    })
    asked.on('error', fail).end()
  })
  assert.equal(status, 200)
})

test('a server on all addresses answers to the names of this machine alone', () => {
  assert.ok(allowedNames('0.0.0.0').has('127.0.0.1'))
  assert.equal(allowedNames('0.0.0.0').has('evil.example'), false)
  assert.deepEqual([...allowedNames('192.0.2.7')], ['192.0.2.7'])
})

test('an open page hears of a new step and of a new run', async () => {
  const root = newFolder()
  const writer = makeRun(join(root, 'one'), 3)
  const { port } = await serve(root)
  const answer = await fetch(`http://127.0.0.1:${port}/api/live`)
  assert.ok(answer.body)
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  let received = ''
  const hear = async (pattern: RegExp) => {
    while (!pattern.test(received)) {
      const { value, done } = await reader.read()
      assert.ok(!done)
      received += value
    }
  }
  await hear(/"step":3/)
  writer.step(4, { loss: 1 })
  writer.close()
  await hear(/"step":4/)
  makeRun(join(root, 'two'), 7).close()
  await hear(/"name":"two"/)
  await reader.cancel()
})
