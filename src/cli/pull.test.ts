// `roundtrip pull` against scripted servers on loopback: a hub, and a second host to which it sends large files.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, beforeEach, test } from 'node:test'
import { modelFolder } from '../core/index.ts'
import { pullRepository } from './hub-client.ts'

const home = mkdtempSync(join(tmpdir(), 'roundtrip-pull-'))
const token = 'hf_secret0123456789'
const commit = 'a'.repeat(40)
const large = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 7919) % 251))
const small = Buffer.from('{"model_type": "tiny"}\n')
const sha256 = (data: Buffer) => createHash('sha256').update(data).digest('hex')
const gitSha = (data: Buffer) => createHash('sha1').update(`blob ${data.length}\0`).update(data).digest('hex')

interface Seen {
  url: string
  authorization: string | undefined
  range: string | undefined
}
type Script = (request: IncomingMessage, response: ServerResponse) => void
const [atHub, atCdn]: [Seen[], Seen[]] = [[], []]
let [sendFile, siblings]: [Script, unknown[]] = [() => undefined, []]
let sendList: Script

async function serve(seen: Seen[], answer: Script): Promise<{ url: string; close(): void }> {
  const server = createServer((request, response) => {
    const { authorization, range } = request.headers
    seen.push({ url: request.url!, authorization, range })
    answer(request, response)
  })
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready))
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => void server.close() }
}

const cdn = await serve(atCdn, (request, response) => sendFile(request, response))
const hub = await serve(atHub, (request, response) => {
  if (request.url!.startsWith('/api/')) sendList(request, response)
  else if (request.url!.includes('absent')) response.writeHead(404).end()
  else if (request.url!.endsWith('/config.json')) response.end(small)
  else response.writeHead(302, { location: `${cdn.url}/signed?signature=abc` }).end()
})

/** The part that was asked for. */
const send: Script = ({ headers }, response) => {
  const from = Number(/^bytes=(\d+)-$/.exec(headers.range ?? '')?.[1] ?? 0)
  const range = { 'content-range': `bytes ${from}-${large.length - 1}/${large.length}` }
  response.writeHead(from > 0 ? 206 : 200, from > 0 ? range : {}).end(large.subarray(from))
}
/** Ends the connection in the middle of the first answers. */
const breaking = (times: number): Script => {
  let left = times
  return (request, response) => {
    if (left-- <= 0) return send(request, response)
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0)
    const range = { 'content-range': `bytes ${from}-${large.length - 1}/${large.length}` }
    response.writeHead(from > 0 ? 206 : 200, { 'content-length': String(large.length - from), ...range })
    response.write(large.subarray(from, from + 100_000), () => setTimeout(() => response.destroy(), 50))
  }
}

const environment = { HF_HOME: process.env.HF_HOME, HF_HUB_CACHE: process.env.HF_HUB_CACHE }
beforeEach(() => {
  process.env.HF_HOME = home
  delete process.env.HF_HUB_CACHE
  atHub.length = atCdn.length = 0
  sendFile = send
  sendList = (_, response) => void response.end(JSON.stringify({ sha: commit, siblings }))
  siblings = [
    { rfilename: 'config.json', size: small.length, blobId: gitSha(small) },
    { rfilename: 'weights/model.safetensors', size: 134, blobId: 'b'.repeat(40), lfs: { sha256: sha256(large), size: large.length } }, // biome-ignore format: one line
  ]
})
afterEach(() => rmSync(join(home, 'hub'), { recursive: true, force: true }))
after(() => {
  for (const server of [hub, cdn]) server.close()
  for (const [name, value] of Object.entries(environment))
    if (value === undefined) delete process.env[name]
    else process.env[name] = value
  rmSync(home, { recursive: true, force: true })
})

const repository = (kind = 'models') => join(home, 'hub', `${kind}--org--tiny`)
const pull = (more: Partial<Parameters<typeof pullRepository>[0]> = {}) =>
  pullRepository({
    ...{ kind: 'models', id: 'org/tiny', revision: 'main', endpoint: hub.url, token, retryMs: 1 },
    onProgress: () => undefined,
    ...more,
  })
const filesIn = (folder: string) =>
  existsSync(folder) ? (readdirSync(folder, { recursive: true }) as string[]).filter((f) => !statSync(join(folder, f)).isDirectory()).sort() : [] // biome-ignore format: one line

test('files are in the cache under their hashes, the snapshot links to them, and the id opens it', async () => {
  const reported: number[] = []
  const folder = await pull({ onProgress: (done) => reported.push(done) })
  assert.equal(folder, join(repository(), 'snapshots', commit))
  assert.deepEqual(filesIn(repository()), [
    ...[`blobs/${gitSha(small)}`, `blobs/${sha256(large)}`, 'refs/main'].sort(),
    ...[`snapshots/${commit}/config.json`, `snapshots/${commit}/weights/model.safetensors`],
  ])
  assert.equal(readlinkSync(join(folder, 'weights/model.safetensors')), `../../../blobs/${sha256(large)}`)
  assert.deepEqual(readFileSync(join(folder, 'weights/model.safetensors')), large)
  assert.equal(modelFolder('org/tiny'), folder)
  assert.equal(modelFolder('org/other'), 'org/other')
  assert.equal(reported.at(-1), small.length + large.length)
  atCdn.length = 0
  await pull()
  assert.equal(atCdn.length, 0, 'what is there is not downloaded again')
})

test('the token goes to the hub and never to the host it redirects to', async () => {
  await pull()
  assert.deepEqual([...new Set(atHub.map((seen) => seen.authorization))], [`Bearer ${token}`])
  assert.deepEqual(
    atCdn.map((seen) => seen.authorization),
    [undefined],
  )
})

test('a connection that breaks is resumed where it ended, also by the next start', async () => {
  sendFile = breaking(2)
  await pull()
  assert.deepEqual(
    atCdn.map((seen) => seen.range),
    [undefined, 'bytes=100000-', 'bytes=200000-'],
  )
  rmSync(repository(), { recursive: true })
  let answered = 0
  sendFile = (request, response) => (answered++ === 0 ? breaking(1)(request, response) : response.destroy())
  await assert.rejects(pull(), /org\/tiny: expected a connection, got .*it resumes/)
  assert.deepEqual(filesIn(repository()), [`blobs/${gitSha(small)}`, `blobs/${sha256(large)}.incomplete`].sort())
  assert.equal(modelFolder('org/tiny'), 'org/tiny', 'a snapshot is there only if it is whole')
  sendFile = send
  atCdn.length = 0
  const folder = await pull()
  assert.equal(atCdn[0]!.range, 'bytes=100000-')
  assert.deepEqual(readFileSync(join(folder, 'weights/model.safetensors')), large)
})

test('a server without ranges, and one that sends nothing for a while, are started again', async () => {
  let answered = 0
  sendFile = (request, response) => (answered++ === 0 ? breaking(1)(request, response) : response.end(large))
  assert.deepEqual(readFileSync(join(await pull(), 'weights/model.safetensors')), large)
  rmSync(repository(), { recursive: true })
  answered = 0
  sendFile = (request, response) => {
    if (answered++ > 1) send(request, response)
    else if (answered > 1) response.writeHead(200).write(large.subarray(0, 1000))
  }
  assert.deepEqual(readFileSync(join(await pull({ stallMs: 300 }), 'weights/model.safetensors')), large)
})

test('a list that never begins, never ends or is too large is an error', async () => {
  sendList = () => undefined
  await assert.rejects(pull({ stallMs: 20 }), /expected a connection, got .*abort/)
  sendList = (_, response) => {
    const timer = setInterval(() => response.write(' '), 10)
    response.on('close', () => clearInterval(timer))
  }
  await assert.rejects(pull({ stallMs: 20 }), /expected a connection, got .*abort/)
  const blank = Buffer.alloc(1 << 20, ' ')
  sendList = (_, response) => {
    const more = () => (response.write(blank) ? setImmediate(more) : response.once('drain', more))
    more()
  }
  await assert.rejects(pull(), /expected a list of up to 134217728 bytes, got more/)
})

test('a redirect to another protocol or with a password is not followed, and its address is not shown', async (t) => {
  const rejected = /org\/tiny: expected a redirect to an https address, got another, which is not shown/
  for (const location of ['http://u:secret@127.0.0.1/', 'file:///secret', 'data:,secret', 'http://[secret']) {
    sendList = (_, response) => void response.writeHead(302, { location }).end()
    await assert.rejects(pull(), (error: Error) => rejected.test(error.message) && !error.message.includes('secret'))
  }
  const asked: string[] = []
  t.mock.method(globalThis, 'fetch', async (url: URL) => {
    asked.push(url.origin)
    return new Response(null, { status: 307, headers: { location: 'http://hub.example/secret' } })
  })
  await assert.rejects(pull({ endpoint: 'https://hub.example' }), rejected)
  assert.deepEqual(asked, ['https://hub.example'])
})

test('a file with a wrong hash or too many bytes is rejected, and nothing of it is left', async () => {
  const other = Buffer.from(large)
  other[150_000]! ^= 1
  sendFile = (_, response) => response.end(other)
  await assert.rejects(pull(), new RegExp(`hash: expected ${sha256(large)}, got ${sha256(other)}`))
  assert.deepEqual(filesIn(join(repository(), 'blobs')), [gitSha(small)])
  sendFile = (_, response) => response.end(Buffer.concat([large, large]))
  await assert.rejects(pull(), /size: expected 300000 bytes, got more/)
  assert.deepEqual(filesIn(join(repository(), 'blobs')), [gitSha(small)])
  siblings = [{ rfilename: 'config.json', size: small.length, blobId: 'c'.repeat(40) }]
  await assert.rejects(pull(), /config\.json: hash: expected c+, got/)
  assert.equal(existsSync(join(repository(), 'refs')), false)
})

test('names and hashes of a hostile server never become paths outside the cache', async () => {
  const entry = { rfilename: 'a', size: small.length, blobId: gitSha(small) }
  for (const bad of ['../x', '/x', 'a/../../x', 'a\\b', '', 'a//b', 7]) {
    siblings = [{ ...entry, rfilename: bad }]
    await assert.rejects(pull(), /siblings: expected a relative path, a size and a hash/, String(bad))
  }
  siblings = [{ ...entry, blobId: '../../../../x' }]
  await assert.rejects(pull(), /siblings: expected/)
  assert.deepEqual(filesIn(home), [])
})

/** The command in a separate process. */
function command(
  words: readonly string[],
  more: NodeJS.ProcessEnv = {},
): Promise<{ code: number | null; text: string }> {
  const bin = join(import.meta.dirname, '../../bin/roundtrip.mjs')
  const env = { ...process.env, HF_HOME: home, HF_TOKEN: token, HF_ENDPOINT: hub.url, ...more }
  const child = spawn(process.execPath, [bin, 'pull', ...words], { env })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (part) => (text += part))
  return new Promise((done) => child.on('close', (code) => done({ code, text })))
}

test('a hub that writes the token back gets it into no message, log, file or folder', async () => {
  const cut = token.slice(0, -2)
  const named = { rfilename: `sub/${token.toUpperCase()}.json`, size: small.length, blobId: gitSha(small) }
  const lists: [string, RegExp][] = [
    [`{"sha": "${token}", "siblings": []}`, /expected a commit and its files, got/],
    [`Bearer ${token}`, /expected a file of JSON, got/],
    [JSON.stringify({ sha: commit, siblings: [{ rfilename: `/${token}`, size: 1 }] }), /siblings: expected/],
    [JSON.stringify({ sha: commit, siblings: [named] }), /siblings: expected names of files, got the token/],
    [
      JSON.stringify({ sha: commit, siblings: [{ ...named, rfilename: cut, blobId: 'c'.repeat(40) }] }),
      /\[key\]: size: expected 23 bytes/,
    ],
  ]
  siblings = []
  for (const [list, message] of lists) {
    sendList = (_, response) => void response.end(list)
    const { code, text } = await command(['org/tiny'], { ROUNDTRIP_LOG: 'debug' })
    assert.equal(code, 1, text)
    assert.match(text, message)
    assert.ok(!text.toLowerCase().includes(cut), text)
  }
  const errors: Script[] = [
    (_, response) => void response.writeHead(302, { location: `http://${token.replace('_', '')}.invalid/` }).end(),
    (_, response) => void response.writeHead(403, `Bearer ${token}`, { 'x-token': token }).end(token),
  ]
  for (const send of errors) {
    sendList = send
    const shown = await pull().then(String, (error: Error) => `${error.stack} ${error.message} ${error.cause}`)
    assert.match(shown, /org\/tiny: expected/)
    assert.ok(!shown.includes(token.slice(3)), shown)
  }
  assert.ok(!filesIn(home).some((name) => name.toLowerCase().includes(token)))
})

test('the command prints progress and the folder, and never the token', async () => {
  const dummy = await command(['org/tiny', '--dataset'], { HF_TOKEN: 'json' })
  assert.ok(!dummy.text.includes('expected names of files'), dummy.text)
  const done = await command(['org/tiny', '--dataset'])
  assert.equal(done.code, 0, done.text)
  assert.match(done.text, /org\/tiny: 100 % of 293\.0 KiB, weights\/model\.safetensors/)
  assert.ok(done.text.includes(join(repository('datasets'), 'snapshots', commit)))
  assert.ok(atHub.some(({ url }) => url === `/datasets/org/tiny/resolve/${commit}/config.json`))
  siblings = [{ rfilename: 'absent', size: 3, blobId: gitSha(small) }]
  const missing = await command(['org/tiny'])
  assert.match(missing.text, /got status 404\. check the id; a dataset needs --dataset/)
  const refused = await command(['org/tiny'], { HF_ENDPOINT: 'http://192.0.2.1' })
  assert.match(refused.text, /HF_ENDPOINT: expected https if HF_TOKEN is set/)
  const shown = await command(['org/tiny'], { HF_ENDPOINT: `https://user:${token}@hub.example` })
  for (const { code, text } of [missing, refused, shown]) assert.equal(code, 1, text)
  for (const { text } of [done, missing, refused, shown]) assert.ok(!text.includes(token), text)
})
