// Run folders with their trackers and locks, the live page and its requests, settings, and replies of a judge.
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { newestValid } from '../../../src/checkpoint/index.ts'
import { readFlags, SettingTable } from '../../../src/config/index.ts'
import { Mismatch, type RandomStream, readBytes, sha256 } from '../../../src/core/index.ts'
import { renderReport } from '../../../src/dashboard/index.ts'
import { RunWatcher } from '../../../src/dashboard/run-watcher.ts'
import { watchApp } from '../../../src/dashboard/server.ts'
import { Judge, JudgeConfig } from '../../../src/rewards/index.ts'
import { RunConfig, resolveRun } from '../../../src/run/index.ts'
import { lockRun } from '../../../src/run/lock.ts'
import { readState } from '../../../src/run/state.ts'
import { readRun } from '../../../src/tracking/index.ts'
import { loggedMetrics, readReached } from '../../../src/tracking/trackers/mlflow-reached.ts'
import { WandbTracker } from '../../../src/tracking/trackers/wandb.ts'
import { train } from '../../support/tracked-run.ts'
import { type Format, secret } from '../format.ts'
import { attackFormat, type Files, filesOf, json } from './attack-folder.ts'

const root = join(import.meta.dirname, '../../..')
const oldRun = join(root, 'tests/fixtures/run-0.1.0')
const page = join(root, 'assets/watch')

async function runs(folder: string): Promise<Files[]> {
  const run = join(folder, 'run')
  if (!existsSync(run)) await train(run, 4, [])
  return [filesOf(run, 'run/'), filesOf(oldRun, 'run/', /^[^/]*$/)]
}

type App = ReturnType<typeof watchApp>
const ask = (app: App, path: string, init: RequestInit = {}) =>
  app.request(`http://127.0.0.1${path}`, { ...init, headers: { host: '127.0.0.1', ...init.headers } })

/** True while the seed's key still has the name of one. */
const isMarked = (run: string) => /"apiKey":\s*"sk-hidden"/.test(readFileSync(join(run, 'config.json'), 'utf8'))

/** The report and every view of the live page. */
async function readViews(folder: string): Promise<string> {
  const run = join(folder, 'run')
  const report = await renderReport(readRun(run))
  if (report.includes('<img src=x')) throw new Error('markup of the run in the report')
  const watched = new RunWatcher([run])
  const app = watchApp({ folders: [run], page, port: 0, address: '127.0.0.1' }, watched)
  try {
    const listed = (await (await ask(app, '/api/runs')).json()) as { runs: { id: string }[] }
    const base = `/api/runs/${listed.runs[0]?.id}`
    const views = ['', '/samples?order=best&part=iou', '/records?words=a', '/series?name=loss&name=toString&points=50']
    const paths = [...views.map((view) => base + view), `/api/csv?run=${listed.runs[0]?.id}&name=loss`]
    for (const path of paths) {
      const answer = await ask(app, path)
      const text = await answer.text()
      if (answer.status >= 500) throw new Error(`${path}: ${answer.status} ${text.slice(0, 300)}`)
      if (text.includes('sk-hidden') && isMarked(run)) throw new Error(`${path}: a secret of the settings`)
    }
    return `${listed.runs.length} runs`
  } finally {
    watched.close()
  }
}

interface Asked {
  path: string
  method: string
  headers: Record<string, string>
}

const headers = { authorization: `Bearer ${secret}x`, cookie: 'roundtrip_watch_80=a; b=c', origin: 'http://127.0.0.1' }
const requests: Asked[] = [
  { path: '/api/runs', method: 'GET', headers },
  { path: '/?token=x', method: 'HEAD', headers: { ...headers, host: '127.0.0.1:80', 'sec-fetch-site': 'none' } },
  { path: '/api/runs/RUN/samples?limit=10&offset=0&order=newest&part=iou&from=1&to=3', method: 'GET', headers: {} },
  { path: '/api/runs/RUN/series?name=loss&points=10', method: 'GET', headers: { range: 'bytes=0-1' } },
  { path: '/api/runs/RUN/images/a.png', method: 'GET', headers: { host: 'localhost' } },
  { path: '/api/csv?run=RUN&name=loss', method: 'GET', headers: { 'x-forwarded-host': 'a' } },
]

function requestOf({ path, method, headers }: Asked, id: string): Request | null {
  try {
    const all = { host: '127.0.0.1', ...headers }
    return new Request(`http://127.0.0.1${path.replace('RUN', id)}`, { method, headers: all })
  } catch {
    return null // not a request that a client can send
  }
}

async function askAll(app: App, id: string, list: readonly Asked[], isOpen: boolean): Promise<number> {
  let answered = 0
  for (const asked of list) {
    const request = requestOf(asked, id)
    if (!request || request.url.includes('/api/live')) continue
    const answer = await app.request(request)
    const text = await answer.text()
    if (answer.status >= 500) throw new Error(`${asked.path}: ${answer.status} ${text.slice(0, 200)}`)
    if (text.includes(secret) || text.includes('root:x:0')) throw new Error(`${asked.path}: a secret`)
    const admitted = request.headers.get('authorization') === `Bearer ${secret}`
    if (!isOpen && !admitted && answer.status < 400)
      throw new Error(`${asked.path}: ${answer.status} without the token`)
    answered++
  }
  return answered
}

async function readRequests(folder: string): Promise<string> {
  const list = JSON.parse(readFileSync(join(folder, 'requests.json'), 'utf8')) as Asked[]
  const run = join(folder, 'run')
  const watched = new RunWatcher([run])
  const options = { folders: [run], page, port: 0, address: '127.0.0.1' }
  const open = watchApp(options, watched)
  try {
    const { runs } = (await (await ask(open, '/api/runs')).json()) as { runs: { id: string }[] }
    const id = runs[0]!.id
    await askAll(watchApp({ ...options, token: secret }, watched), id, list, false)
    return `${await askAll(open, id, list, true)} answered`
  } finally {
    watched.close()
  }
}

const pieces = [
  '..',
  '%2e%2e',
  '%00',
  '%',
  '%ff',
  ';a=b',
  '//',
  '\\',
  '?',
  '#',
  '*',
  'api',
  'RUN',
  'images',
  '\u00e9',
  '+',
  '&&',
  '[]',
  '=',
]
const values = [
  '',
  ' ',
  '-1',
  '1e309',
  'NaN',
  'null',
  '127.0.0.1.',
  '[::1]',
  '127.0.0.1:80:80',
  'a@127.0.0.1',
  'x'.repeat(9000),
  '\u00e9',
]

/** One or two pieces of the path, or one header, exchanged or added. */
function oddRequest(asked: Asked, random: RandomStream): Asked {
  const parts = asked.path.split(/(?=[/?&=])/)
  for (let i = 0; i <= random.below(3); i++) {
    const piece = random.pick([...pieces, ...values, `token=${secret.slice(1)}`])
    parts.splice(random.below(parts.length + 1), random.below(2), `${random.pick(['/', '?', '&', '=', ''])}${piece}`)
  }
  const names = ['host', 'authorization', 'cookie', 'origin', 'sec-fetch-site', 'accept', 'range', 'content-length']
  const value = random.pick([
    ...values,
    'Bearer',
    `bearer ${secret}`,
    `Basic ${secret}`,
    `Bearer  ${secret}`,
    'roundtrip_watch_80=',
  ])
  const method = random.pick([asked.method, 'GET', 'GET', 'HEAD', 'POST', 'DELETE', 'OPTIONS', 'PROPFIND'])
  return { path: parts.join(''), method, headers: { ...asked.headers, [random.pick(names)]: value } }
}

const requestFormat: Format = {
  name: 'attack-requests',
  async setup(folder) {
    const seeds = await runs(folder)
    return (random) => {
      const list = Array.from({ length: 12 }, () => oddRequest(random.pick(requests), random))
      return { files: { ...random.pick(seeds), 'requests.json': json(list) }, note: json(list.slice(0, 2)) }
    }
  },
  read: readRequests,
}

const reached = { server: 'http://h/api/2.0/mlflow', run_id: 'r', sent: 3 }

async function readTrackers(folder: string): Promise<string> {
  const dir = join(folder, 'run')
  const run = { dir, name: 'n', settings: { a: 1 }, resumedAt: 4 }
  const sent = readReached(run, reached.server)?.sent ?? -1
  const steps = [...loggedMetrics(dir, sent, 6)].length
  const tracker = new WandbTracker(join(dir, 'wandb'), run, Date.now())
  tracker.step(1, { a: 1 }, Date.now())
  tracker.close('done', Date.now())
  if (!tracker.path.startsWith(join(dir, 'wandb/offline-run-'))) throw new Error(`outside: ${tracker.path}`)
  return `${steps} steps`
}

const owner = { host: 'elsewhere', pidSpace: null, pid: 1, born: '1', since: '2026-01-01T00:00:00Z', token: 'a' }

function readLock(folder: string): string {
  const lock = lockRun(folder)
  lock.touch()
  lock.release()
  if (existsSync(join(folder, 'run.lock'))) throw new Error('not released')
  const left = readdirSync(folder).filter((name) => name.startsWith('run.lock'))
  return `${left.length} left`
}

function checkpoints(): Files[] {
  return [filesOf(join(oldRun, 'checkpoint_step_3'), 'run/checkpoint_step_3/')]
}

/** The manifest is rewritten, so that the damage is reached. */
function readStates(folder: string): string {
  const dir = join(folder, 'run/checkpoint_step_3')
  const manifest = JSON.parse(readFileSync(join(dir, 'manifest.json'), 'utf8')) as { files: Record<string, unknown> }
  try {
    const bytes = readBytes(join(dir, 'state.json'))
    manifest.files['state.json'] = { size: bytes.length, sha256: sha256(bytes) }
  } catch {} // not a file: the manifest stays as it is
  writeFileSync(join(dir, 'manifest.json'), json(manifest))
  const { checkpoint, invalid } = newestValid(join(folder, 'run'))
  if (!checkpoint) throw new Mismatch({ where: dir, expected: 'a whole checkpoint', got: invalid[0]?.reason })
  const config = { batchSize: 1, rl: { gradientAccumulationSteps: 1 } } as RunConfig
  return `step ${readState(checkpoint.path, config).step}`
}

async function recipes(): Promise<Files[]> {
  const { parse } = await import('yaml')
  const folder = join(root, 'recipes')
  const names = readdirSync(folder).filter((name) => name.endsWith('.yaml'))
  const texts = names.map((name) => readFileSync(join(folder, name), 'utf8'))
  return texts.flatMap((text): Files[] => [{ 'r.yaml': text }, { 'r.json': json(parse(text)) }])
}

function readSettings(folder: string): string {
  const file = ['r.yaml', 'r.json'].find((name) => existsSync(join(folder, name))) ?? 'r.yaml'
  const given = readFlags(['--recipe', join(folder, file)], new SettingTable(RunConfig))
  const settings = json(resolveRun(given.settings as never))
  if (/:(1e\d{3}|-?Infinity|NaN)\b/.test(settings)) throw new Error('a setting that is not a finite number')
  return 'resolved'
}

const reply = {
  id: 'x',
  choices: [{ index: 0, message: { role: 'assistant', content: '7' } }],
  usage: { total_tokens: 3 },
}
const list = { ...reply, choices: [{ message: { content: '["A", "B", {"question": "q", "choices": ["a"]}]' } }] }

async function readReplies(folder: string): Promise<string> {
  const body = readFileSync(join(folder, 'reply.json'))
  const server = createServer((asked, answer) => {
    asked.resume()
    answer.writeHead(body.length % 7 === 0 ? 400 : 200, { 'Content-Type': 'application/json', Connection: 'close' })
    answer.end(Buffer.from(body.toString('latin1').replaceAll('x', asked.headers.authorization ?? ''), 'latin1'))
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`
  const limits = { timeoutMs: 2000, retries: 0, retryBaseMs: 1, canaryRate: 0, cacheDir: join(folder, 'cache') }
  try {
    for (const mode of ['number', 'checklist'] as const) {
      const config = JudgeConfig.parse({ enabled: true, baseUrl, apiKeyEnv: 'FUZZ_KEY', mode, ...limits })
      const judge = new Judge(config, { FUZZ_KEY: secret })
      const { score, reason } = await judge.judge('a red box', 'a red box on the left')
      judge.close()
      if (score !== null && !(score >= 0 && score <= 1)) throw new Error(`${mode}: score ${score}`)
      if (String(reason).includes(secret)) throw new Error(`${mode}: the key in ${reason}`)
    }
    const stored = existsSync(join(folder, 'cache')) ? Object.values(filesOf(join(folder, 'cache'))).join('') : ''
    if (stored.includes(secret)) throw new Error('the key in the cache')
    return 'in range'
  } finally {
    server.close()
  }
}

export const attackRuns = [
  attackFormat({ name: 'run-folder', seeds: runs, read: readViews }),
  requestFormat,
  attackFormat({
    name: 'trackers',
    seeds: async (folder) =>
      (await runs(folder)).map((files) => ({
        ...files,
        'run/mlflow.json': json(reached),
        'run/wandb/id': 'a1b2c3d4\n',
      })),
    attacks: /mlflow|wandb|events|timing/,
    read: readTrackers,
    writes: /^run\/wandb/,
  }),
  attackFormat({ name: 'lock', seeds: () => [{ 'run.lock': json(owner) }], read: readLock, writes: /^run\.lock/ }),
  attackFormat({ name: 'state', seeds: checkpoints, attacks: /state/, read: readStates }),
  attackFormat({ name: 'recipe', seeds: recipes, read: readSettings }),
  attackFormat({
    name: 'judge',
    seeds: () => [reply, list].map((value) => ({ 'reply.json': json(value) })),
    isPlain: true,
    read: readReplies,
    writes: /^cache/,
  }),
]
