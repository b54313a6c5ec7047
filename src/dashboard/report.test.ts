import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { encodeRle, maskFromDense } from '../mask/index.ts'
import { FollowedRun, type MaskRle, RunWriter, readRun, type Sample } from '../tracking/index.ts'
import { maskPath, traceBorder } from '../tracking/outline.ts'
import { chosenOf, flatten } from './facts.ts'
import { smooth, thin, ticks } from './markup/chart.ts'
import { escapeHtml } from './markup/html.ts'
import { counted } from './markup/metrics.ts'
import { renderReport } from './report.ts'
import { MaskPaths, samplesView } from './views.ts'

const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;'--><svg onload=alert(1)>\u0000\u202e</style>`
const rle = (rows: readonly string[]) => {
  const bits = Uint8Array.from(rows.join(''), (c) => (c === '#' ? 1 : 0))
  return encodeRle(maskFromDense(bits, rows.length, rows[0]!.length)) as unknown as MaskRle
}
const square = rle(['....', '.##.', '.##.', '....'])

function sample(more: Partial<Sample>): Sample {
  const base = { step: 1, loop: 'loop1', id: 'a', k: 0, text: 'a disc', given: square, made: square }
  return { ...base, rewards: { iou: 1 }, total: 1, advantage: 0, logp: -1, length: 3, ...more }
}

/** A tiny run; `text` is in every place that may hold text of others. */
function makeRun(text: string): string {
  const dir = join(mkdtempSync(join(tmpdir(), 'report-')), 'run')
  const writer = RunWriter.create(dir, {
    config: { seed: 1, [text]: text, judge: { api_key: 'sk-hidden' } },
    environment: { device: text },
  })
  writer.start({ [text]: text })
  writer.eval(0, 'before', 8, { [text]: { mean: 0.4, low: 0.3, high: 0.5 } })
  for (let step = 1; step <= 5; step++) {
    writer.step(step, {
      [text]: step,
      'loop1/reward_mean': step / 5,
      'loop2/reward_mean': step === 2 ? Number.NaN : 0.5,
      'points/reward_mean': 1e17 + 16 * step,
    })
    const texts = { text, reference: text, answer: text, image: text }
    writer.samples([0, 1].map((k) => sample({ step, id: text + step, k, total: k, rewards: { [text]: k }, ...texts })))
  }
  writer.warning(3, text, text, 4)
  writer.eval(5, 'after', 8, { [text]: { mean: 0.8, low: 0.7, high: 0.9 } })
  writer.stop(5, text)
  writer.close()
  // Clocks are the only thing two equal runs differ in.
  writeFileSync(join(dir, 'timing.jsonl'), '{"t":"start","step":0,"time":1700000000000}\n')
  return dir
}

test('hostile text stays text everywhere, and the page can load nothing', async () => {
  const page = await renderReport(readRun(makeRun(hostile)))
  assert.ok(page.split('&lt;script&gt;alert(1)&lt;/script&gt;').length > 20)
  for (const tag of page.matchAll(/<(\/?)([a-zA-Z!][^\s/>]*)/g)) {
    const allowed =
      '!doctype html head meta title style body main header section article h1 h2 h3 p div span b i small dl dt dd details summary table thead tbody tr th td figcaption figure blockquote svg g path line circle rect text image'.split(
        ' ',
      )
    assert.ok(allowed.includes(tag[2]!), `<${tag[1]}${tag[2]}`)
  }
  for (const tag of page.matchAll(/<[a-z][^>]*>/g)) assert.doesNotMatch(tag[0].replace(/"[^"]*"/g, '""'), /\son\w+=/)
  assert.equal(/https?:|src=(?!x)|url\(|@import|[\u0000\u202e]/.test(page), false)
  assert.match(page, /default-src &#39;none&#39;/)
  assert.equal(page.includes('sk-hidden'), false)
})

test('the report of a tiny run is the same page every time', async () => {
  const one = await renderReport(readRun(makeRun('plain')))
  assert.equal(await renderReport(readRun(makeRun('plain'))), one)
  assert.match(one, /0\.400 <small>\[0\.300, 0\.500\]/)
  assert.match(one, /<span class="up">\+0\.400<\/span> <small>intervals apart/)
  assert.match(one, /1 not finite/)
  assert.match(one, /<td>plain<\/td><td class="number">4<\/td>/)
  assert.match(one, /the image plain is not in the run folder/)
})

test('a run that was killed before its first step still gives a page', async () => {
  const dir = join(mkdtempSync(join(tmpdir(), 'report-')), 'empty')
  RunWriter.create(dir, { config: {}, environment: {} }).close()
  const page = await renderReport(readRun(dir))
  for (const words of ['No evaluation yet', 'No step has been logged', '0 sampled completions', 'no end noted']) {
    assert.ok(page.includes(words), words)
  }
})

test('an image is shown from images/ alone, and a damaged mask is reported', async () => {
  const dir = makeRun('plain')
  const { default: sharp } = await import('sharp')
  const png = await sharp(Buffer.alloc(48, 200), { raw: { width: 4, height: 4, channels: 3 } })
    .png()
    .toBuffer()
  mkdirSync(join(dir, 'images'))
  writeFileSync(join(dir, 'images', 'good.png'), png)
  writeFileSync(join(dir, 'images', 'page.png'), '<svg onload=alert(1)>')
  const made = { size: [4, 4] as const, counts: '~~' }
  const names = ['good.png', 'page.png', '../config.json']
  const lines = names.map((image, i) => JSON.stringify(sample({ id: `x${i}`, image, made, total: 9 })))
  writeFileSync(join(dir, 'samples.jsonl'), `${lines.join('\n')}\n`)
  const page = await renderReport(readRun(dir))
  assert.ok(page.includes(`href="data:image/png;base64,${png.toString('base64')}"`))
  assert.match(page, /the image page\.png could not be shown: no PNG, JPEG or WebP/)
  assert.match(page, /the image \.\.\/config\.json is not in the run folder/)
  assert.match(page, /a mask could not be drawn: RLE/)
})

test('a sample names who drew no mask, calls an empty mask empty, and shows no special tokens', async () => {
  const dir = join(mkdtempSync(join(tmpdir(), 'report-')), 'run')
  const writer = RunWriter.create(dir, { config: {}, environment: {} })
  writer.start({})
  const said = { text: 'a disc.<|end|>', answer: 'Sure, it is [SEG].<|im_end|></s>', madeBy: 'ema' as const }
  writer.samples([sample({ ...said, made: null }), sample({ ...said, id: 'b', made: rle(['..', '..']) })])
  await writer.close()
  const run = readRun(dir)
  const page = await renderReport(run)
  assert.ok(page.includes('EMA copy: no mask was drawn') && page.includes('EMA copy: the mask is empty'))
  assert.equal(/policy: (no|the) mask|&lt;\||&lt;\/s&gt;/.test(page), false)
  assert.ok(page.includes('Sure, it is [SEG].'))
  const live = new FollowedRun(dir)
  while (live.poll()) {}
  const { samples } = samplesView(live, { order: 'newest', offset: 0, limit: 9 }, new MaskPaths())
  const lacks = samples.flatMap(({ shown }) => shown.flatMap((item) => (item.kind === 'mask' && item.missing ? `${item.by}: ${item.missing}` : []))) // biome-ignore format: one line
  assert.deepEqual(lacks.sort(), ['ema: no mask was drawn', 'ema: the mask is empty'])
})

test('a sample without tokens shows neither text nor log-prob of the policy, one whose answer is empty does', async () => {
  const pageOf = async (length: number) => {
    const dir = join(mkdtempSync(join(tmpdir(), 'report-')), 'run')
    const writer = RunWriter.create(dir, { config: {}, environment: {} })
    writer.start({})
    writer.samples([sample({ text: '', reference: 'the disc', madeBy: 'policy', logp: 0, length })])
    await writer.close()
    const article = /<article class="rollout">.*?<\/article>/s.exec(await renderReport(readRun(dir)))![0]
    return ['the disc', '(empty)', '>log-prob<', '>tokens<'].map((part) => article.includes(part))
  }
  assert.deepEqual(await pageOf(0), [true, false, false, false])
  assert.deepEqual(await pageOf(1), [true, true, true, true])
})

test('counts have the number of their word', () => {
  assert.deepEqual([counted(0, 'step'), counted(1, 'step'), counted(2, 'step')], ['0 steps', '1 step', '2 steps']) // biome-ignore format: one line
})

test('escapeHtml leaves no markup and no half characters', () => {
  assert.equal(escapeHtml(`<a href="x">&'\ud800</a>`), '&lt;a href=&quot;x&quot;&gt;&amp;&#39;\ufffd&lt;/a&gt;')
  assert.equal(escapeHtml('naïve 日本 🙂\n'), 'naïve 日本 🙂\n')
})

test('a mask becomes the path of its border, holes and touching corners included', () => {
  assert.equal(maskPath(square, 4, 4), 'M1 1L3 1L3 3L1 3Z')
  assert.equal(maskPath(square, 8, 2), 'M2 0.5L6 0.5L6 1.5L2 1.5Z')
  assert.equal(maskPath(rle(['...', '...']), 3, 2), '')
  const ring = maskPath(rle(['###', '#.#', '###']), 3, 3)
  assert.equal(ring.split('M').length - 1, 2)
})

test('the border of any mask encloses its area: the shoelace sum of the loops is the number of pixels', () => {
  const [width, height] = [9, 7]
  for (let seed = 1; seed <= 200; seed++) {
    const dense = Uint8Array.from({ length: width * height }, (_, i) => (((i + 1) * seed * 2654435761) >>> 7) & 1)
    let twice = 0
    for (const loop of traceBorder(dense, width, height)) {
      const at = (i: number) => {
        const corner = loop[i % loop.length]!
        return [corner % (width + 1), Math.floor(corner / (width + 1))] as const
      }
      for (let i = 0; i < loop.length; i++) twice += at(i)[0] * at(i + 1)[1] - at(i + 1)[0] * at(i)[1]
    }
    assert.equal(
      twice / 2,
      dense.reduce((a, b) => a + b, 0),
    )
  }
})

test('ticks are round, thinning keeps the spikes, smoothing keeps a straight line inside', () => {
  assert.deepEqual(ticks(0.03, 0.97, 5), [0.2, 0.4, 0.6, 0.8])
  assert.deepEqual(ticks(-0.05, 0.05, 5), [-0.04, -0.02, 0, 0.02, 0.04])
  for (const [low, high] of [
    [1e17, 1e17 + 16],
    [-1e300, 1e300],
    [5e-324, 1e-323],
    [0, Number.POSITIVE_INFINITY],
  ] as const)
    assert.ok(ticks(low, high, 5).length <= 20, `${low} to ${high}`)
  const few = thin(Array.from({ length: 10_000 }, (_, step) => (step === 7777 ? 50 : step / 1e4)))
  assert.ok(few.length <= 400 && few.includes(7777))
  const line = smooth(Array.from({ length: 240 }, (_, step) => 2 * step))
  assert.ok(Math.abs(line[120]! - 240) < 1e-9)
})

test('settings are flattened by name, and secrets are not shown', () => {
  const settings = { a: { b: 1, c: [1, 2] }, d: null, judge: { apiKey: 'sk-1', api_key: '', maxTokens: 5 } }
  assert.deepEqual(flatten(settings), [
    ['a.b', '1'],
    ['a.c', '1, 2'],
    ['d', 'null'],
    ['judge.apiKey', '(not shown)'],
    ['judge.api_key', ''],
    ['judge.maxTokens', '5'],
  ])
})

test('settings of a part that is switched off are not at the top', () => {
  const settings = (enabled: boolean) =>
    flatten({ seed: 3, judge: { enabled, model: 'big', seed: 4 }, judgement: { seed: 5 } })
  const top = (enabled: boolean) => chosenOf(settings(enabled)).map(([key]) => key)
  assert.deepEqual(top(true), ['seed', 'judge.model', 'judge.seed', 'judgement.seed'])
  assert.deepEqual(top(false), ['seed', 'judgement.seed'])
})

test('settings nested by the thousand are cut, not an error', async () => {
  const dir = makeRun('plain')
  writeFileSync(join(dir, 'config.json'), `${'{"a":'.repeat(4000)}1${'}'.repeat(4000)}`)
  assert.match(await renderReport(readRun(dir)), /nested too deeply/)
})
