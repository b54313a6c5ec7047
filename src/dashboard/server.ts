// The live page's server: it reads run folders and answers, and changes nothing.
import { createReadStream, readFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { basename, join } from 'node:path'
import { Readable } from 'node:stream'
import { serve } from '@hono/node-server'
import { type Context, Hono } from 'hono'
import { streamSSE } from 'hono/streaming'
import { fileBelow, Mismatch, messageOf } from '../core/index.ts'
import {
  encodeJson,
  type FollowedRun,
  runFiles,
  type SampleOrder,
  type SampleQuery,
  sampleOrders,
} from '../tracking/index.ts'
import { BehaviourViews } from './behaviour.ts'
import { type GuardOptions, guard } from './guard.ts'
import { mediaTypeOf } from './picture.ts'
import { RunWatcher } from './run-watcher.ts'
import { style } from './style.ts'
import { csvOf, MaskPaths, recordsView, runView, samplesView, summaryOf } from './views.ts'

const pageFiles: Record<string, { file: string; type: string }> = {
  '/': { file: 'index.html', type: 'text/html; charset=utf-8' },
  '/page.js': { file: 'page.js', type: 'text/javascript; charset=utf-8' },
  '/page.css': { file: 'page.css', type: 'text/css; charset=utf-8' },
}
const maxListeners = 64
const maxNames = 200
const maxSamples = 100
const beatMs = 15_000

export interface WatchOptions extends GuardOptions {
  /** Run folders, or folders of run folders. */
  folders: readonly string[]
  /** Folder of the built page. */
  page: string
  /** 0: any free one. */
  port: number
}

const json = (c: Context, value: unknown) => c.body(encodeJson(value), 200, { 'Content-Type': 'application/json' })

/** A number in the query; undefined if absent. */
function number(c: Context, name: string): number | undefined {
  const text = c.req.query(name)
  if (text === undefined || text === '') return undefined
  const value = Number(text)
  if (!Number.isFinite(value)) throw new Mismatch({ where: 'question', field: name, expected: 'a number', got: text })
  return value
}

function sampleQuery(c: Context): SampleQuery {
  const order = c.req.query('order') ?? 'newest'
  if (!sampleOrders.includes(order as SampleOrder)) {
    throw new Mismatch({ where: 'question', field: 'order', expected: sampleOrders.join(', '), got: order })
  }
  const whole = (name: string, max: number, otherwise: number) =>
    Math.min(max, Math.max(0, Math.floor(number(c, name) ?? otherwise)))
  return {
    task: c.req.query('task') || undefined,
    record: c.req.query('record'),
    from: number(c, 'from'),
    to: number(c, 'to'),
    order: order as SampleOrder,
    part: c.req.query('part') || undefined,
    onePerRecord: c.req.query('unique') === '1',
    offset: whole('offset', 10_000, 0),
    limit: whole('limit', maxSamples, 24),
  }
}

/** A picture directly in the run's images folder, not a link out of it; undefined: none. */
async function imageOf(run: FollowedRun, name: string): Promise<{ path: string; type: string } | undefined> {
  if (basename(name) !== name || name === '' || name.includes('\0')) return undefined
  const path = fileBelow(join(run.dir, runFiles.images), name)
  if (path === null) return undefined
  try {
    const file = await open(path)
    try {
      const head = Buffer.alloc(4)
      await file.read(head, 0, 4, 0)
      const type = mediaTypeOf(head)
      return type ? { path, type } : undefined
    } finally {
      await file.close()
    }
  } catch {
    return undefined // missing or not readable: the same answer
  }
}

/** Pushes the state of the runs whenever something changes. */
function addLive(app: Hono, watched: RunWatcher): void {
  let listeners = 0
  app.get('/api/live', (c) => {
    if (c.req.method === 'HEAD') return c.body(null, 200, { 'Content-Type': 'text/event-stream' }) // nobody reads a stream
    if (listeners >= maxListeners) return c.text('too many pages are open', 503)
    return streamSSE(c, async (stream) => {
      listeners++
      let wake = () => {}
      const off = watched.listen(() => wake())
      stream.onAbort(() => wake())
      try {
        while (!stream.aborted) {
          const runs = watched.runs.map((run) => summaryOf(run))
          await stream.writeSSE({ event: 'runs', data: encodeJson({ runs, problems: watched.problems }) })
          await new Promise<void>((done) => {
            const beat = setTimeout(done, beatMs)
            wake = () => {
              clearTimeout(beat)
              done()
            }
          })
        }
      } finally {
        off()
        listeners--
      }
    })
  })
}

function addRuns(app: Hono, watched: RunWatcher): void {
  const paths = new MaskPaths()
  const get = (path: string, answer: (c: Context, run: FollowedRun, id: string) => Response | Promise<Response>) =>
    app.get(`/api/runs/:id${path}`, (c) => {
      const run = watched.find(c.req.param('id'))
      return run ? answer(c, run, c.req.param('id')) : c.text('no such run', 404)
    })
  app.get('/api/runs', (c) => json(c, { runs: watched.runs.map((run) => summaryOf(run)), problems: watched.problems }))
  get('', (c, run, id) => json(c, runView({ id, run })))
  get('/series', (c, run) => json(c, seriesOf(c, run)))
  get('/samples', (c, run) => json(c, samplesView(run, sampleQuery(c), paths)))
  get('/records', (c, run) => json(c, recordsView(run, c.req.query('words') ?? '')))
  const behaviours = new BehaviourViews()
  get('/behaviour', async (c, run, id) => json(c, { html: await behaviours.view(id, run) }))
  app.get('/api/csv', (c) => {
    const runs = (c.req.queries('run') ?? []).slice(0, maxNames).map((id) => watched.find(id))
    if (runs.length === 0 || runs.includes(undefined)) return c.text('no such run', 404)
    return c.body(csvOf(runs as FollowedRun[], namesOf(c)), 200, {
      'Content-Type': 'text/csv; charset=utf-8',
      'Content-Disposition': 'attachment; filename="metrics.csv"',
    })
  })
  get('/images/:name', async (c, run) => {
    const image = await imageOf(run, c.req.param('name') ?? '')
    if (!image) return c.text('no such picture', 404)
    c.header('Cache-Control', 'private, max-age=3600')
    c.header('Content-Type', image.type)
    return c.body(Readable.toWeb(createReadStream(image.path)) as ReadableStream)
  })
}

const namesOf = (c: Context) => (c.req.queries('name') ?? []).slice(0, maxNames)

function seriesOf(c: Context, run: FollowedRun): unknown {
  const query = { from: number(c, 'from'), to: number(c, 'to'), points: number(c, 'points') ?? 1000 }
  const known = new Set(run.metrics.names)
  const entries = namesOf(c).map((name) => {
    const table = known.has(name) ? run.metrics : run.timing
    return { name, ...table.series(name, query) }
  })
  return { version: run.version, series: entries }
}

export function watchApp(options: WatchOptions, watched: RunWatcher): Hono {
  const app = new Hono()
  app.use('*', guard(options))
  app.use('*', async (_, next) => {
    watched.touch()
    await next()
  })
  for (const [path, { file, type }] of Object.entries(pageFiles)) {
    const own = readFileSync(join(options.page, file))
    const bytes = file === 'page.css' ? Buffer.concat([Buffer.from(style), own]) : own // the report's style, then the page's own
    app.get(path, (c) => c.body(bytes, 200, { 'Content-Type': type }))
  }
  addRuns(app, watched)
  addLive(app, watched)
  app.notFound((c) => c.text('nothing here', 404))
  app.onError((error, c) =>
    error instanceof Mismatch ? c.text(error.message, 400) : c.text(`could not be read: ${messageOf(error)}`, 500),
  )
  return app
}

export interface WatchServer {
  port: number
  /** The address to open, token included. */
  url: string
  close(): Promise<void>
}

export async function startWatch(options: WatchOptions): Promise<WatchServer> {
  const watched = new RunWatcher(options.folders)
  const app = watchApp(options, watched)
  const { address: hostname, port } = options
  const server = serve({ fetch: app.fetch, hostname, port })
  await new Promise<void>((done, fail) => {
    server.once('listening', done)
    server.on('error', fail) // stays: a later error, such as no free file handle for a connection, must not end the process
  })
  watched.touch() // reads while the browser starts
  const at = (server.address() as AddressInfo).port
  const name = hostname === '0.0.0.0' || hostname === '::' ? 'localhost' : hostname
  const shown = name.includes(':') ? `[${name}]` : name
  return {
    port: at,
    url: `http://${shown}:${at}/${options.token === undefined ? '' : `?token=${encodeURIComponent(options.token)}`}`,
    close: () =>
      new Promise((done) => {
        watched.close()
        server.close(() => done())
        if ('closeAllConnections' in server) server.closeAllConnections()
      }),
  }
}
