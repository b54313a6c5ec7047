// ReasonSeg answered by a Qwen-VL with a SAM2 next to it, tasks points and reason. The scorer here shares no code with the program.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after, before } from 'node:test'
import { fileURLToPath } from 'node:url'
import { encodePng } from '../../src/image/index.ts'
import { maskBox } from '../../src/mask/index.ts'
import { makePointScene } from '../../src/scenes/index.ts'
import { roundtrip } from './cli.ts'

const path = (name: string) => fileURLToPath(new URL(`../../${name}`, import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'roundtrip-sentences-'))
const at = (name: string) => join(folder, name)
after(() => rmSync(folder, { recursive: true, force: true }))

type Corners = [number, number, number, number]
const side = 112
/** Target and ignored rectangle of each image, both ends inside. */
const drawn = new Map<string, { target: Corners; ignored: Corners }>()

before(async () => {
  mkdirSync(at('ReasonSeg/val'), { recursive: true })
  for (let i = 0; i < 5; i++) {
    const { record } = makePointScene(21, i)
    const [x, y, w, h] = maskBox(record.mask)
    const target: Corners = [x, y, x + w - 1, y + h - 1]
    const ignored: Corners = [x, y, x + 4, y + h - 1]
    const corners = ([a, b, c, d]: Corners) => [[a, b], [c, b], [c, d], [a, d]] // biome-ignore format: one line
    const shapes = [
      { label: 'target', points: corners(target) },
      { label: 'ignore', points: corners(ignored) },
    ]
    writeFileSync(at(`ReasonSeg/val/${i}.png`), await encodePng(record.image))
    writeFileSync(at(`ReasonSeg/val/${i}.json`), JSON.stringify({ text: [record.query], is_sentence: i % 2 === 0, shapes })) // biome-ignore format: one line
    drawn.set(String(i), { target, ignored })
  }
})

const scenes = ['eval', '--benchmark', 'reasonseg', '--data', at('ReasonSeg')]
const small = (group: string) => [`--${group}.imageSize`, '112', `--${group}.wording`, 'short']
const policy = path('assets/points-miniature/policy')
const pairs: Record<string, string[]> = {
  points: ['--task', 'points', '--points.sam', path('assets/points-miniature/sam2'), ...small('points')],
  reason: [
    ...['--task', 'reason', '--reason.sam', path('assets/points-miniature/sam2-boxes'), ...small('reason')],
    ...['--reason.multimask', 'false', '--adapter', path('tests/fixtures/reason-adapter')],
  ],
}
const model = ['--model', policy, '--device', 'cpu', '--rl.maxCompletionLength', '96']
const asked = (task: string, out: string, ...more: string[]) =>
  roundtrip(...scenes, ...model, ...pairs[task]!, '--out', at(out), ...more)

interface Areas {
  both: number
  either: number
}

/** As `eval` without a benchmark computes them; ignored pixels are background there. */
async function evaluatedAreas(task: string): Promise<Areas[]> {
  const { out, err } = await roundtrip('eval', '--data', at('ReasonSeg/val'), ...model, ...pairs[task]!, '--json')
  assert.ok(out, err)
  return (JSON.parse(out) as { scores: { areas: Areas }[] }).scores.map(({ areas }) => areas)
}

interface Row {
  id: string
  answer: string
  rle: { size: [number, number]; counts: string } | null
}

const linesOf = (file: string) => readFileSync(at(file), 'utf8').trim().split('\n')
const rowsOf = (file: string) => linesOf(file).slice(1).map((line) => JSON.parse(line) as Row) // biome-ignore format: one line

/** COCO's compressed run lengths -> pixels, column by column. */
function pixels({ size: [height, width], counts }: NonNullable<Row['rle']>): Uint8Array {
  const runs: number[] = []
  for (let i = 0; i < counts.length; ) {
    let [value, shift, more] = [0, 0, true]
    while (more) {
      const c = counts.charCodeAt(i++) - 48
      value |= (c & 31) << shift
      shift += 5
      more = (c & 32) !== 0
      if (!more && c & 16) value |= -1 << shift
    }
    runs.push(runs.length > 2 ? value + runs[runs.length - 2]! : value)
  }
  return Uint8Array.from(runs.flatMap((run, i) => Array<number>(run).fill(i % 2))).subarray(0, height * width)
}

const isIn = ([x1, y1, x2, y2]: Corners, x: number, y: number) => x1 <= x && x <= x2 && y1 <= y && y <= y2

function areasOf({ id, rle }: Row, counts: (isIgnored: boolean) => boolean): Areas {
  const { target, ignored } = drawn.get(id)!
  const mask = rle ? pixels(rle) : new Uint8Array(side * side)
  let [both, either] = [0, 0]
  for (let q = 0; q < side * side; q++) {
    const [x, y] = [Math.floor(q / side), q % side]
    const isIgnored = isIn(ignored, x, y)
    if (!counts(isIgnored)) continue
    const [a, b] = [mask[q] === 1, isIn(target, x, y) && !isIgnored]
    both += Number(a && b)
    either += Number(a || b)
  }
  return { both, either }
}

/** gIoU: mean overlap of the images, with LISA's small numbers in the divisions; cIoU: all intersections over all unions. Ignored pixels do not count. */
function ownScores(rows: readonly Row[]): { gIoU: number; cIoU: number } {
  const areas = rows.map((row) => areasOf(row, (isIgnored) => !isIgnored))
  const sum = (of: (one: Areas) => number) => areas.reduce((total, one) => total + of(one), 0)
  return {
    gIoU: sum((a) => a.both / (a.either + 1e-5)) / (rows.length + 1e-5),
    cIoU: sum((a) => a.both) / sum((a) => a.either),
  }
}

type Table = { table: { split: string; protocol: string; gIoU: number; cIoU: number; sentences: number }[] }
const lisa = (out: string) => (JSON.parse(out) as Table).table.filter((row) => row.protocol === 'lisa' && row.split === 'val') // biome-ignore format: one line

for (const task of ['points', 'reason']) {
  test(`${task}: the table of ReasonSeg is that of an independent scorer`, async () => {
    const { code, out, err } = await asked(task, task, '--json')
    assert.equal(code, 0, err)
    const rows = rowsOf(`${task}/eval-reasonseg.jsonl`)
    assert.ok(rows.length === 5 && rows.filter((row) => row.rle).length > 2, JSON.stringify(rows))
    const [printed] = lisa(out)
    const own = ownScores(rows)
    assert.ok(own.gIoU > 0.05 && own.gIoU < 0.95, `${own.gIoU}`)
    assert.ok(Math.abs(printed!.gIoU - own.gIoU) < 1e-9, `${printed!.gIoU} ${own.gIoU}`)
    assert.ok(Math.abs(printed!.cIoU - own.cIoU) < 1e-9, `${printed!.cIoU} ${own.cIoU}`)
    assert.equal(/points\.mode negatives: the prompt of each object comes from its target/.test(err), task === 'points')
  })
}

test('the masks of reason are those of eval; those of points leave out the negative clicks', async () => {
  const areas = rowsOf('reason/eval-reasonseg.jsonl').map((row) => areasOf(row, () => true))
  assert.deepEqual(areas, await evaluatedAreas('reason'))
  for (const { answer, rle } of rowsOf('points/eval-reasonseg.jsonl')) {
    const [[x, y]] = JSON.parse(answer) as [[number, number]]
    assert.equal(pixels(rle!)[x * side + y], 0, answer)
  }
})

test('an interrupted run resumes, and other settings are other rows', async () => {
  const file = 'reason/eval-reasonseg.jsonl'
  const whole = linesOf(file)
  writeFileSync(at(file), `${whole.slice(0, 3).join('\n')}\n${whole[3]!.slice(0, 20)}`)
  const resumed = await asked('reason', 'reason')
  assert.equal(resumed.code, 0, resumed.err)
  assert.match(resumed.err, /reasonseg, 2 answers kept/)
  assert.deepEqual(linesOf(file), whole)
  const other = await asked('reason', 'reason', '--reason.multimask', 'true')
  assert.match(other.err, /header: expected \{"multimask":true\}, got \{"multimask":false\}/)
})
