// The live page, the report and the command line against visitors and texts.
import assert from 'node:assert/strict'
import { mkdirSync, readdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { printable } from '../../src/core/index.ts'
import { renderReport, startWatch, type WatchServer } from '../../src/dashboard/index.ts'
import { RunWriter, readRun } from '../../src/tracking/index.ts'
import { roundtrip } from '../e2e/cli.ts'
import { hostOf } from '../support/runs.ts'
import type { Bench } from './bench.ts'
import { quick, type Row, row } from './row.ts'

const assets = fileURLToPath(new URL('../../assets/watch', import.meta.url))

async function served<T>(
  bench: Bench,
  name: string,
  body: (port: number, server: WatchServer) => Promise<T>,
): Promise<T> {
  const folder = bench.at(name)
  const writer = RunWriter.create(folder, { config: {}, environment: {} })
  writer.start({ tasks: [{ name: 'loop1', title: 'loop1' }], total: 1 })
  writer.step(1, { loss: 1 })
  writer.close()
  const server = await startWatch({ folders: [folder], page: assets, port: 0, address: '127.0.0.1' })
  try {
    return await body(server.port, server)
  } finally {
    await server.close()
  }
}

function get(
  port: number,
  path: string,
  headers: Record<string, string> = {},
  method = 'GET',
): Promise<{ status: number; text: string }> {
  return new Promise((done, fail) => {
    const asked = request({ host: '127.0.0.1', port, path, method, headers }, (answer) => {
      let text = ''
      answer.setEncoding('latin1').on('data', (piece: string) => {
        text += piece
      })
      answer.on('end', () => done({ status: answer.statusCode ?? 0, text }))
    })
    asked.on('error', fail)
    asked.end()
  })
}

async function traversal(bench: Bench): Promise<string> {
  writeFileSync(bench.at('secret.png'), 'secret-7781')
  return served(bench, 'served', async (port) => {
    mkdirSync(join(bench.at('served'), 'images'), { recursive: true })
    symlinkSync('../../secret.png', join(bench.at('served'), 'images', 'link.png'))
    const { runs } = JSON.parse((await get(port, '/api/runs')).text) as { runs: { id: string }[] }
    const ups = [
      '../',
      '..%2f',
      '%2e%2e/',
      '%2e%2e%2f',
      '..%5c',
      '..\\',
      '%252e%252e%252f',
      '....//',
      '..%00/',
      '/',
      '//',
    ]
    const ends = ['secret.png', 'etc/passwd', 'link.png', 'events.jsonl', '%00']
    const bases = ['/', `/api/runs/${runs[0]!.id}/images/`]
    let asked = 0
    for (const base of bases)
      for (const up of ups)
        for (const end of ends) {
          const answer = await get(port, `${base}${up}${up}${end}`).catch(() => ({ status: 400, text: '' }))
          assert.ok(!/secret-7781|root:x:/.test(answer.text), `${base}${up}${end}`)
          asked++
        }
    return `${asked} requests, nothing outside the run folder`
  })
}

const hostile = [
  '<script>x</script>',
  '"><img src=x onerror=y>',
  "';alert(1)//",
  '</style><svg onload=z>',
  '\u001b]0;t\u0007\u001b[2J',
]

async function markup(bench: Bench): Promise<string> {
  const folder = bench.at('markup')
  const text = hostile.join(' ')
  const writer = RunWriter.create(folder, { config: { note: text }, environment: {} })
  writer.start({ tasks: [{ name: text, title: text }], total: 1 })
  writer.step(1, { [text]: 1 })
  writer.stop(1, 'done')
  writer.close()
  const html = await renderReport(readRun(folder))
  assert.ok(!/<script>x|<img src=x|<svg onload/.test(html), 'markup in the page')
  assert.ok(!printable(text).includes('\u001b'), 'an escape sequence for the terminal')
  return `${hostile.length} texts stay text in the report; escape sequences are shown, not sent`
}

async function foreign(bench: Bench): Promise<string> {
  return served(bench, 'foreign', async (port) => {
    const own = `127.0.0.1:${port}`
    const refused: [Record<string, string>, string][] = [
      [{ host: 'evil.example' }, 'GET'],
      [{ host: '127.0.0.1.evil.example' }, 'GET'],
      [{ host: own, origin: 'http://evil.example' }, 'GET'],
      [{ host: own, 'sec-fetch-site': 'cross-site' }, 'GET'],
      [{ host: own }, 'POST'],
      [{ host: own }, 'DELETE'],
    ]
    for (const [headers, method] of refused) {
      const { status } = await get(port, '/api/runs', headers, method)
      assert.ok(status >= 400, `${method} ${JSON.stringify(headers)}: ${status}`)
    }
    assert.equal((await get(port, '/api/runs', { host: own })).status, 200)
    return `${refused.length} foreign requests refused, the own one answered`
  })
}

/** Sockets of this process that listen, by their inode. */
function listening(): Set<string> {
  const tables = ['/proc/net/tcp', '/proc/net/tcp6'].map((path) => readFileSync(path, 'utf8'))
  const fields = tables.flatMap((text) => text.trim().split('\n').slice(1)).map((line) => line.trim().split(/\s+/))
  const inodes = fields.filter((f) => f[3] === '0A').map((f) => `socket:[${f[9]}]`)
  const own = new Set(readdirSync('/proc/self/fd').map((fd) => linkOf(`/proc/self/fd/${fd}`)))
  return new Set(inodes.filter((inode) => own.has(inode)))
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return '' // closed meanwhile
  }
}

async function sockets(bench: Bench): Promise<string> {
  const before = listening()
  const opened = new Set<string>()
  const look = () => {
    for (const inode of listening()) if (!before.has(inode)) opened.add(inode)
  }
  await bench.train('sockets', { maxSteps: 1 }, hostOf(undefined, { progress: look }))
  assert.deepEqual([...opened], [])
  return 'a run listens on no port'
}

async function keyAsFlag(): Promise<string> {
  const { code, out, err } = await roundtrip('train', '--rewards.judge.apiKey', 'canary-key-9', '--model', 'x')
  assert.notEqual(code, 0)
  assert.ok(!`${out}${err}`.includes('canary-key-9'), 'the key is printed')
  return err.trim().split('\n').at(-1)!.slice(0, 140)
}

async function slowVisitors(bench: Bench): Promise<string> {
  return served(bench, 'slow', async (port) => {
    const open: Socket[] = []
    for (let i = 0; i < 1000; i++) {
      const socket = connect(port, '127.0.0.1')
      socket.on('error', () => undefined)
      socket.on('connect', () => socket.write('GET / HTTP/1.1\r\nHost: 127.0'))
      open.push(socket)
    }
    const { step } = await bench.train('slow-run', { maxSteps: 1 })
    const kept = open.filter((socket) => socket.readyState === 'open').length
    for (const socket of open) socket.destroy()
    assert.equal(step, 1)
    assert.ok(kept < 1000, `${kept} connections stay open`)
    return `1,000 half requests: ${kept} stayed open, training went on`
  })
}

export const page: readonly Row[] = [
  quick(58, 'traversal', 'requests that lead out of the run folder', 'outside', traversal),
  quick(59, 'markup', 'markup and escape sequences in texts', 'outside', markup),
  quick(60, 'foreign', 'foreign Host and Origin, requests that would change something', 'outside', foreign),
  quick(61, 'sockets', 'ports that a run opens', 'outside', sockets),
  row(63, 'key-as-flag', 'a key on the command line', 'secret', keyAsFlag),
  row(64, 'slow-visitors', '1,000 slow connections to the live page', 'outside', slowVisitors),
]
