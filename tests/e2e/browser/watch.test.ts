// The live page in a real browser: against a run that trains at this moment, ended and broken ones, many and large ones.
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { fileURLToPath } from 'node:url'
import type { Browser, Page } from 'playwright-core'
import { makeLargeRun } from '../../../bench/large-run.ts'
import { encodeRle, maskFromDense } from '../../../src/mask/index.ts'
import { type MaskRle, RunWriter, type Sample } from '../../../src/tracking/index.ts'
import { inTime } from '../../support/in-time.ts'
import { start } from '../cli.ts'
import { needsBrowser, openBrowser } from './chromium.ts'

const program = fileURLToPath(new URL('../../../bin/roundtrip.mjs', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'roundtrip-watch-'))
const limit = { timeout: 600_000 }
const children: ChildProcess[] = []
let browser: Browser | undefined

after(async () => {
  await browser?.close()
  for (const child of children) child.kill()
  rmSync(folder, { recursive: true, force: true })
})

/** `roundtrip watch` as a user starts it; its address and process. */
async function watch(...args: readonly string[]): Promise<{ url: string; pid: number }> {
  const child = spawn(process.execPath, [program, 'watch', '--port', '0', ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.push(child)
  const url = await new Promise<string>((done, fail) => {
    child.stdout.setEncoding('utf8').on('data', (text: string) => done(text.trim()))
    child.on('close', () => fail(new Error('watch ended')))
  })
  return { url, pid: child.pid! }
}

interface Opened {
  page: Page
  /** What went wrong in the page: errors, refused resources. */
  faults: string[]
}

async function open(url: string, options: { width?: number; colorScheme?: 'light' | 'dark' } = {}): Promise<Opened> {
  browser ??= await openBrowser()
  const { width = 1280, colorScheme = 'light' } = options
  const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme })
  const faults: string[] = []
  page.on('pageerror', (error) => faults.push(error.message))
  page.on('dialog', (dialog) => {
    faults.push(`dialog ${dialog.message()}`)
    void dialog.dismiss()
  })
  page.on('console', (message) => {
    // A picture that a run does not have is answered with 404; everything else on the console is a fault.
    if (message.type() === 'error' && !/404/.test(message.text())) faults.push(message.text())
  })
  await page.goto(url)
  await page.waitForSelector('.picker li', limit)
  return { page, faults }
}

const views = ['curves', 'behaviour', 'step', 'evaluations', 'rollouts', 'notices', 'settings']

async function show(page: Page, view: string): Promise<void> {
  await page.evaluate((name) => {
    location.hash = name
  }, view)
  await page.waitForSelector(`nav a[aria-current][href="#${view}"]`, limit)
  await page.waitForTimeout(300)
}

const mask = encodeRle(
  maskFromDense(
    Uint8Array.from({ length: 64 }, (_, i) => (i % 8 > 2 && i > 20 ? 1 : 0)),
    8,
    8,
  ),
) as unknown as MaskRle

function sample(step: number, k: number, text: string, id: string): Sample {
  const shown = [
    { kind: 'text' as const, by: 'record' as const, text },
    { kind: 'mask' as const, by: 'record' as const, mask },
    { kind: 'text' as const, by: 'policy' as const, text: `${text} ${step}` },
    { kind: 'mask' as const, by: 'ema' as const, mask: k === 0 ? null : mask },
    {
      kind: 'points' as const,
      by: 'policy' as const,
      size: [8, 8] as const,
      points: [{ x: 2, y: 3, positive: false }],
    },
  ]
  const scores = { rewards: { [text]: k / 4, judge: null }, total: k / 4, advantage: k - 1.5, logp: -3, length: 4 }
  return { step, loop: text, id, k, shown, ...scores, image: 'a.png' }
}

function makeRun(name: string, steps: number, options: { text?: string; seed?: number; end?: string } = {}): string {
  const { text = 'points', seed = 1, end } = options
  const dir = join(folder, name)
  const writer = RunWriter.create(dir, {
    config: { seed, [text]: text, judge: { model: text } },
    environment: { device: text },
  })
  writer.start({ tasks: [{ name: text, title: text }], total: steps, [text]: text })
  writer.eval(0, 'before', 8, { [text]: { mean: 0.4, low: 0.3, high: 0.5 } })
  for (let step = 1; step <= steps; step++) {
    const metrics = {
      total_loss: seed / step,
      [`${text}/reward_mean`]: step / steps,
      [text]: step === 2 ? Number.NaN : step,
    }
    writer.step(step, metrics, {
      step_time: 1,
      'seconds/sample': 0.6,
      'seconds/learn': 0.4,
      live_bytes: 2 ** 30 + step,
    })
    writer.samples([0, 1, 2].map((k) => sample(step, k, text, `${text} record`)))
  }
  writer.notice(text, text, 2)
  writer.eval(steps, 'after', 8, { [text]: { mean: 0.8, low: 0.7, high: 0.9 } })
  if (end) writer.stop(steps, end)
  writer.close()
  return dir
}

test('the page shows a step of a run that is training as soon as its event is there', {
  ...needsBrowser,
  timeout: 1_200_000,
}, async (t) => {
  const output = join(folder, 'training')
  const short =
    '--recipe demo --model assets/miniature --batchSize 1 --maxSteps 100000 --evalRecords 0 --rl.numGenerations 2'
  const training = start('train', ...short.split(' '), '--output', output)
  mkdirSync(output, { recursive: true })
  const { url } = await watch(output)
  const { page, faults } = await open(url).catch(async (error) => {
    training.signal('SIGKILL')
    throw new Error(`${error}\n${(await training.ended).err}`)
  })
  const shownStep = () => page.locator('.state').getAttribute('data-step')
  const eventSteps = () => readFileSync(join(output, 'events.jsonl'), 'utf8').split('"t":"step"').length - 1
  for (let seen = 0, wanted = eventSteps() + 1; seen < 5; seen++, wanted++) {
    while (eventSteps() < wanted) await new Promise((done) => setTimeout(done, 10))
    const shown = page.waitForFunction(
      (n) => Number(document.querySelector('.state')?.getAttribute('data-step')) >= n,
      wanted,
      { ...limit, polling: 20 },
    )
    await inTime(t, `step ${wanted} shown`, 2000, shown)
    wanted = Math.max(wanted, Number(await shownStep()))
  }
  await page.waitForFunction(
    () => /[1-9]/.test(document.querySelector('[data-last]')?.getAttribute('data-last') ?? ''),
    undefined,
    limit,
  )
  await show(page, 'rollouts')
  await page.waitForSelector('.rollout .picture svg path', limit)
  training.signal('SIGTERM')
  await training.ended
  await page.waitForSelector('.state.ended', limit)
  assert.deepEqual(faults, [])
  await page.close()
})

test('ended and broken runs are shown as what they are, and none of the views has an error', needsBrowser, async () => {
  const parent = join(folder, 'states')
  makeRun('states/done', 6, { end: 'done' })
  const broken = makeRun('states/broken', 4)
  appendFileSync(join(broken, 'events.jsonl'), 'garbage\n{"t":"ste')
  writeFileSync(join(broken, 'config.json'), '{')
  const { url } = await watch(parent)
  const { page, faults } = await open(url)
  for (const box of await page.locator('.picker input[type=checkbox]').all()) await box.check()
  assert.match((await page.locator('.state[data-run=done]').textContent()) ?? '', /done, step 6 of 6/)
  assert.match((await page.locator('.state[data-run=broken]').textContent()) ?? '', /running|no sign of life/)
  for (const view of views) await show(page, view)
  await show(page, 'notices')
  await page.waitForFunction(
    () => document.body.innerText.includes('config.json is missing or no JSON'),
    undefined,
    limit,
  )
  await page.waitForFunction(
    () => document.body.innerText.includes('events.jsonl: 1 line could not be read'),
    undefined,
    limit,
  )
  assert.deepEqual(faults, [])
  await page.close()
})

test('ten runs are shown side by side, named by the setting in which they differ', needsBrowser, async () => {
  for (let seed = 0; seed < 10; seed++) makeRun(`ten/run-${seed}`, 8, { seed, end: 'done' })
  const { url } = await watch(join(folder, 'ten'))
  const { page, faults } = await open(url)
  await page.getByRole('button', { name: 'all 10', exact: true }).click()
  await page.getByLabel('name runs by').selectOption('seed')
  await page.getByLabel('smoothing').fill('0')
  const figure = page.locator('figure', { has: page.locator('b', { hasText: 'total_loss' }) })
  await page.waitForFunction(
    () =>
      /seed 9: lowest 1.125, highest 9, last/.test(
        document.querySelector('.plot[aria-label^="total_loss"]')?.getAttribute('aria-label') ?? '',
      ),
    undefined,
    limit,
  )
  const label = (await figure.locator('.plot').getAttribute('aria-label')) ?? ''
  for (let seed = 0; seed < 10; seed++) assert.ok(label.includes(`seed ${seed}: `), label)
  await show(page, 'settings')
  assert.match((await page.locator('main').textContent()) ?? '', /settings: 1 of 3 differ/)
  await show(page, 'evaluations')
  assert.equal(await page.locator('.whiskers circle').count(), 20)
  assert.deepEqual(faults, [])
  await page.close()
})

const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;'--><svg onload=alert(1)></style>{{1}}\u202e`

test('markup and scripts in captions, names and settings are shown as text in every view', needsBrowser, async () => {
  makeRun('hostile/run <img src=x onerror=alert(1)>', 5, { text: hostile, end: hostile })
  makeRun('hostile/other', 5, { text: hostile })
  const { url } = await watch(join(folder, 'hostile'))
  const { page, faults } = await open(url)
  for (const box of await page.locator('.picker input[type=checkbox]').all()) await box.check()
  for (const view of views) {
    await show(page, view)
    await page.waitForFunction(
      () => document.body.innerHTML.includes('&lt;script&gt;alert(1)&lt;/script&gt;'),
      undefined,
      limit,
    )
    const foreign = await page.evaluate(() => {
      const all = [...document.querySelectorAll('*')]
      const handlers = all.filter((e) => e.getAttributeNames().some((name) => name.startsWith('on')))
      const scripts = document.querySelectorAll('script:not([src="/page.js"]), iframe, object, embed, style').length
      return handlers.length + scripts + document.querySelectorAll('img:not([src^="/api/"])').length
    })
    assert.equal(foreign, 0, view)
  }
  await show(page, 'rollouts')
  assert.ok((await page.locator('blockquote').first().textContent())?.includes('<script>alert(1)</script>'))
  assert.deepEqual(faults, [])
  await page.close()
})

test('the views pass axe in light and dark, on a wide and on a narrow screen', needsBrowser, async () => {
  makeRun('axe/one', 6, { end: 'done' })
  makeRun('axe/two', 6, { seed: 2 })
  const { url } = await watch(join(folder, 'axe'))
  const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
  for (const [colorScheme, width] of [
    ['light', 1280],
    ['dark', 390],
  ] as const) {
    const { page, faults } = await open(url, { colorScheme, width })
    for (const box of await page.locator('.picker input[type=checkbox]').all()) await box.check()
    await page.evaluate(axe)
    for (const view of views) {
      await show(page, view)
      const found = await page.evaluate(async () => {
        const { axe: run } = window as unknown as {
          axe: { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> }
        }
        return (await run.run()).violations.map((v) => `${v.id}: ${v.nodes[0]?.html}`)
      })
      assert.deepEqual(found, [], `${view} ${colorScheme} ${width}`)
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
      assert.ok(wide <= 0, `${view} at ${width} is ${wide} pixels too wide`)
    }
    assert.deepEqual(faults, [])
    await page.close()
  }
})

test('curves are read, zoomed and taken away by keyboard', needsBrowser, async () => {
  makeRun('keys/run', 20, { end: 'done' })
  const { url } = await watch(join(folder, 'keys'))
  const { page } = await open(url)
  const figure = page.locator('figure', { has: page.locator('b', { hasText: 'total_loss' }) })
  await page.waitForFunction(() => document.querySelector('.plot[aria-label*="at step 20"]') !== null, undefined, limit)
  await figure.locator('.plot').focus()
  await page.keyboard.press('ArrowRight')
  assert.deepEqual(await figure.locator('.values > span').allTextContents(), ['step 1', '1'])
  await page.keyboard.press('+')
  await page.waitForFunction(
    () =>
      !document.querySelector('.plot[aria-label^="total_loss"]')?.getAttribute('aria-label')?.includes('at step 20'),
    undefined,
    limit,
  )
  await page.keyboard.press('0')
  await page.waitForFunction(
    () => document.querySelector('.plot[aria-label^="total_loss"]')?.getAttribute('aria-label')?.includes('at step 20'),
    undefined,
    limit,
  )
  const taken: Record<string, string> = {}
  for (const kind of ['PNG', 'SVG', 'CSV']) {
    const [file] = await Promise.all([page.waitForEvent('download'), figure.getByText(kind, { exact: true }).click()])
    taken[kind] = readFileSync((await file.path())!, 'latin1')
  }
  assert.ok(taken.PNG?.startsWith('\x89PNG'))
  assert.match(taken.SVG ?? '', /^<svg [\s\S]*total_loss[\s\S]*<path d="M/)
  assert.equal(taken.CSV?.split('\r\n')[2], '2,0.5')
  await page.close()
})

/** Most memory the process has had, in MiB. */
const peakOf = (pid: number) =>
  Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024

test('a run of 20,000 steps and 500,000 samples opens at once in a server of at most 300 MB', {
  ...needsBrowser,
  timeout: 1_200_000,
}, async (t) => {
  const dir = join(folder, 'large')
  makeLargeRun(dir, mask.counts)
  browser ??= await openBrowser()
  const { url, pid } = await watch(dir)
  const opened = open(url).then(async ({ page, faults }) => {
    await page.waitForFunction(
      () => document.querySelector('.plot[aria-label*="at step 20000"]') !== null,
      undefined,
      limit,
    )
    return { page, faults }
  })
  const { page, faults } = await inTime(t, 'curves', 10_000, opened) // the clock of an idle machine: npm run bench -- watch-large
  await show(page, 'rollouts')
  await page.waitForFunction(
    () => /500000 samples; 24 shown/.test(document.querySelector('[role=status]')?.textContent ?? ''),
    undefined,
    limit,
  )
  await page.getByLabel('order').selectOption('best')
  await page.waitForFunction(() => document.querySelector('.rollout .number')?.textContent === '0.34', undefined, limit)
  const peak = peakOf(pid)
  assert.ok(peak < 300, `${peak} MiB`)
  assert.deepEqual(faults, [])
  await page.close()
})
