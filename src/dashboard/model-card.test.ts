import assert from 'node:assert/strict'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { parse } from 'yaml'
import { RunWriter, readRun } from '../tracking/index.ts'
import { type ModelCard, modelCard, plain } from './model-card.ts'
import { cardOfRun } from './run-card.ts'

const hostile = `"a": | *b* <script>alert(1)</script> [x](javascript:alert(1)) \`c\`\n---\n# d`

const card = (text: string): ModelCard => ({
  name: text,
  baseModel: text,
  method: 'grpo',
  recipe: [[text, text]],
  data: { name: text, records: 10, heldOut: 4 },
  steps: 12,
  before: { [text]: { mean: 0.4, low: 0.3, high: 0.5 } },
  after: { [text]: { mean: 0.8, low: 0.7, high: 0.9 }, odd: { mean: Number.NaN, low: 0, high: 1 } },
  evalRecords: 4,
  picture: { file: 'round trip.png', text },
  versions: [['torch', text]],
  command: ['train', text],
  loading: [{ title: text, language: 'python', code: 'x = "```"' }],
})

function parts(text: string): { head: Record<string, unknown>; body: string } {
  const end = text.indexOf('\n---\n', 4)
  assert.ok(text.startsWith('---\n') && end > 0)
  return { head: parse(text.slice(4, end)) as Record<string, unknown>, body: text.slice(end + 5) }
}

test('the head of a model card is YAML with the given values', () => {
  const { head } = parts(modelCard({ ...card('org/data'), license: 'apache-2.0' }))
  assert.equal(head.base_model, 'org/data')
  assert.deepEqual([head.license, head.library_name, head.datasets], ['apache-2.0', 'transformers', ['org/data']])
  const index = head['model-index'] as { results: { metrics: unknown[] }[] }[]
  assert.deepEqual(index[0]?.results[0]?.metrics, [{ name: 'org/data', type: 'org/data', value: 0.8 }])
})

test('texts with markup stay text in head and body', () => {
  const { head, body } = parts(modelCard(card(hostile)))
  assert.equal(head.base_model, hostile)
  const outsideFences = body.replace(/^(`{3,})[\s\S]*?^\1$/gm, '')
  assert.equal(/(^|[^\\])<script/.test(outsideFences), false)
  assert.equal(/(^|[^\\])\]\(javascript/.test(outsideFences), false)
  assert.equal(/^# d/m.test(outsideFences), false)
  assert.ok(body.includes('````python\nx = "```"\n````'))
  assert.equal(plain('a_b'), 'a\\_b')
})

test('a model card has metrics before and after with intervals, data, recipe, versions and how to load', () => {
  const text = modelCard(card('plain'))
  assert.match(
    text,
    /\| plain \| 0\.400 \[0\.300, 0\.500\] \| 0\.800 \[0\.700, 0\.900\] \| \+0\.400, intervals apart \|/,
  )
  assert.match(text, /plain: 10 records, 4 held out\./)
  assert.match(text, /!\[plain\]\(round%20trip\.png\)/)
  assert.match(text, /roundtrip train plain/)
  assert.match(modelCard(card("a b's")), /^roundtrip train 'a b'\\''s'$/m)
  assert.match(text, /GRPO in 12 steps/)
  assert.match(modelCard({ ...card('plain'), steps: 1 }), /GRPO in 1 step\b/)
})

test('the facts of a model card come from the run folder', () => {
  const dir = mkdtempSync(join(tmpdir(), 'card-'))
  const environment = { product: '1.2.3', torch: '2.1', device: 'cpu', command: ['train', '--seed', '5'] }
  const writer = RunWriter.create(dir, { config: { seed: 5, dataPath: 'org/name', rl: { beta: 0.1 } }, environment })
  writer.start({ records: 40, trained: 28, held_out: 12 })
  writer.eval(0, 'before', 8, { iou: { mean: 0.1, low: 0, high: 0.2 } })
  writer.step(3, { loss: 1 })
  writer.eval(3, 'after', 8, { iou: { mean: 0.5, low: 0.4, high: 0.6 } })
  void writer.close()
  const facts = cardOfRun(readRun(dir), 3)
  assert.deepEqual(facts.data, { name: 'org/name', records: 40, trained: 28, heldOut: 12, evaluated: 8 })
  assert.deepEqual([facts.steps, facts.before?.iou?.mean, facts.after?.iou?.mean], [3, 0.1, 0.5])
  assert.deepEqual(facts.recipe, [
    ['seed', '5'],
    ['rl.beta', '0.1'],
  ])
  assert.deepEqual(facts.versions.slice(0, 2), [
    ['roundtrip', '1.2.3'],
    ['torch', '2.1'],
  ])
  assert.deepEqual(facts.command, ['train', '--seed', '5'])
})
