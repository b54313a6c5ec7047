import assert from 'node:assert/strict'
import { test } from 'node:test'
import { clock, progress, short } from './progress.ts'

function screen(isTTY: boolean, columns = 80) {
  const out: string[] = []
  const time = { now: 0 }
  const stream = { isTTY, columns, write: (text: string) => out.push(text) }
  return { out, time, stream, now: () => time.now }
}

const visible = (text: string) => text.replace(/\u001b\[K|\r|\n/g, '')

test('a terminal sees one rewritten line with bar, share, time left, rate and fields', () => {
  const { out, time, stream, now } = screen(true, 100)
  const shown = progress({ total: 200, label: 'train', unit: 'step', stream, now })
  time.now = 25_000
  shown.update(50, { reward: 0.51234, loss: -1.5e-5 })
  assert.equal(out.length, 1)
  assert.match(
    out[0]!,
    /^\rtrain \|█{6} +\| 25% {2}50\/200 {2}ETA 1:15 {2}2 step\/s {2}reward 0\.512 {2}loss -1\.5e-5\u001b\[K$/,
  )
  time.now = 25_050
  shown.update(51)
  assert.equal(out.length, 1, 'not more often than ten times a second')
  time.now = 100_000
  shown.update(200)
  shown.done()
  assert.match(out.at(-2)!, /100% {2}200\/200 {2}1:40/)
  assert.equal(out.at(-1), '\n')
})

test('a clock that is set back changes neither the line nor when it is drawn', async (t) => {
  const { out, stream } = screen(true)
  let time = Date.now()
  t.mock.method(Date, 'now', () => time)
  const shown = progress({ total: 4, label: 'train', stream })
  shown.update(1)
  time -= 3_600_000
  await new Promise((done) => setTimeout(done, 150))
  shown.update(4)
  assert.match(visible(out.at(-1)!), / 4\/4 {2}0:0/)
})

test('at 80 columns the line of a training run keeps its bar and whole fields', () => {
  const { out, time, stream, now } = screen(true, 80)
  const shown = progress({ total: 5000, label: 'train', unit: 'step', stream, now })
  time.now = 11_700_000
  shown.update(4999, { loop1: 0.0876, loop2: 0.133, grad: 0.503, 'tok/s': 1234.5 })
  assert.match(visible(out[0]!), /^train \|█{5,}\S* *\| 99% .* loop1 0\.0876( {2}[\w/]+ [\d.e+]+)*$/)
})

test('no line is wider than the terminal, at any width and with any text', () => {
  for (let columns = 1; columns <= 120; columns++) {
    const { out, time, stream, now } = screen(true, columns)
    const shown = progress({ total: 1e6, label: '画像 evaluating', unit: 'record', stream, now })
    for (const text of ['plain', 'two\nlines\u001b[2J', 'x'.repeat(300)]) {
      time.now += 500
      shown.update(time.now, { text, reward: 0.5 })
    }
    for (const line of out) {
      const wide = [...visible(line)].reduce((n, c) => n + (c === '画' || c === '像' ? 2 : 1), 0)
      assert.ok(wide <= columns, `${wide} of ${columns}`)
      assert.equal(line.includes('\n') || line.includes('\u001b[2J'), false)
    }
  }
})

test('elsewhere a plain line is written every few seconds, and the last state once', () => {
  const { out, time, stream, now } = screen(false)
  const shown = progress({ total: 100, label: 'eval', unit: 'record', stream, now })
  for (let n = 1; n <= 100; n++) {
    time.now = n * 200
    shown.update(n)
  }
  shown.done()
  assert.equal(out.length, 5)
  for (const line of out) assert.match(line, /^eval [^\r\u001b]*\n$/)
  assert.match(out.at(-1)!, /100\/100/)
  time.now += 10_000
  shown.done()
  assert.equal(out.length, 5, 'also where time goes by before the end')
})

test('before enough time has passed neither a rate nor the time left is shown, also when the work is done', () => {
  const lineAfter = (ms: number, n: number) => {
    const { out, time, stream, now } = screen(true)
    const shown = progress({ total: 12, label: 'evaluation', unit: 'record', stream, now })
    time.now = ms
    shown.update(n)
    return visible(out[0]!)
  }
  assert.match(lineAfter(1, 4), /33% {2}4\/12 {2}ETA -:--$/)
  assert.match(lineAfter(199, 12), /100% {2}12\/12 {2}0:00$/)
  assert.match(lineAfter(400, 4), /33% {2}4\/12 {2}ETA 0:01 {2}10 record\/s$/)
})

test('resumed work counts its rate and time left from where it began', () => {
  const { out, time, stream, now } = screen(true, 120)
  const shown = progress({ total: 1000, start: 900, label: 'train', stream, now })
  time.now = 100_000
  shown.update(950)
  assert.match(out[0]!, /95% {2}950\/1000 {2}ETA 1:40 {2}2 s\/step/)
})

test('work of unknown length shows its count and no bar; a message stays above the line', () => {
  const { out, time, stream, now } = screen(true)
  const shown = progress({ label: 'scan', unit: 'file', stream, now })
  time.now = 1000
  shown.update(7)
  assert.equal(visible(out[0]!), 'scan  7  0:01  7 file/s')
  shown.message('bad record 3')
  assert.equal(out[1], '\r\u001b[Kbad record 3\n')
  assert.equal(visible(out[2]!), visible(out[0]!))
})

test('clock and short write numbers in few characters', () => {
  assert.deepEqual([9, 123, 3723, Number.NaN, Number.POSITIVE_INFINITY].map(clock), [
    '0:09',
    '2:03',
    '1:02:03',
    '-:--',
    '-:--',
  ])
  assert.deepEqual([0, 12, 0.5, 1e-5, 123456.7, Number.NaN].map(short), ['0', '12', '0.500', '1.0e-5', '1.2e+5', 'NaN'])
})
