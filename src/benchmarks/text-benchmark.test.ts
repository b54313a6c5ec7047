import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { encodePng } from '../image/index.ts'
import { encodeRle, maskFromDense } from '../mask/index.ts'
import { type GroundedFamily, openFamily } from '../models/index.ts'
import { JudgeClient, JudgeConfig, JudgeStats, meteor } from '../rewards/index.ts'
import { makeScene, type Scene } from '../scenes/index.ts'
import { describeWith } from './describe.ts'
import { isPlural, openDlcBench } from './dlc-bench.ts'
import { openGarVqa } from './gar-vqa.ts'
import { openRegionCaptions, sa2vaCaption } from './region-captions.ts'
import { countTextWarning, readAnswers } from './text-benchmark.ts'
import { answerItems } from './text-run.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-text-'))
after(() => rmSync(folder, { recursive: true, force: true }))
const scenes = [0, 1].map((i) => makeScene(5, i))
const rleOf = ({ mask, image }: Scene) => encodeRle(maskFromDense(mask, image.height, image.width))
const json = (path: string, value: unknown) => writeFileSync(join(folder, path), JSON.stringify(value))
for (const dir of ['gar/annotations/images', 'dlc/images', 'caps/images'])
  mkdirSync(join(folder, dir), { recursive: true })
for (const [i, scene] of scenes.entries()) {
  const png = await encodePng(scene.image)
  for (const dir of ['gar/annotations/images', 'dlc/images', 'caps/images'])
    writeFileSync(join(folder, dir, `${i}.png`), png)
}

const choices = ['A. red', 'B. <Prompt1> is blue']
json('gar/annotations/GAR-Bench-VQA.json', [
  {
    image: 'images/0.png',
    question: 'What is <Prompt0>?',
    choices,
    answer: 'A',
    type: 'color',
    mask_rles: [rleOf(scenes[0]!)],
  },
  {
    image: 'images/0.png',
    question: 'And <Prompt1>?',
    choices,
    answer: 'B',
    type: 'color',
    mask_rles: [rleOf(scenes[0]!), rleOf(scenes[0]!)],
  },
  { image: 'images/1.png', question: 'Shape?', choices, answer: 'B', type: 'shape', mask_rles: [rleOf(scenes[1]!)] },
])

test('GAR-Bench VQA: regions are named as the model knows them, right is the letter alone, by type and overall', async () => {
  const bench = openGarVqa(join(folder, 'gar'))
  assert.equal(
    bench.items[1]!.question,
    "<image>\nQuestion: And region2?\nOptions:\nA. red\nB. region2 is blue\nAnswer with the correct option's letter directly.",
  )
  assert.match(countTextWarning(bench)!, /3 items, the published set has 424/)
  json('gar/predictions.json', { 0: ' a ', 1: 'B. region2 is blue', 2: 'b' })
  const { metrics } = await bench.score(readAnswers(join(folder, 'gar/predictions.json'), bench.items), { seed: 1 })
  assert.deepEqual([metrics['color']!.mean, metrics['shape']!.mean, metrics['overall']!.mean], [0.5, 1, 2 / 3])
  // with two images, a resample has the first twice, the second twice, or both
  assert.deepEqual([metrics['overall']!.low, metrics['overall']!.high], [0.5, 1])
})

const coco = (extra: object) => ({
  images: scenes.map(({ image }, i) => ({ id: i, file_name: `${i}.png`, height: image.height, width: image.width })),
  annotations: scenes.map((scene, i) => ({ id: i, image_id: i, segmentation: rleOf(scene), ...extra })),
})
json('caps/finetune_refcocog_val_with_mask.json', coco({}))
json('caps/finetune_refcocog_val_captions.json', {
  annotations: [
    { image_id: 0, id: 0, caption: 'a red star' },
    { image_id: 1, id: 1, caption: 'the small blue square on the left' },
  ],
})

test('captions of regions: our METEOR and CIDEr-D, and CIDEr-D after the clean-up of Sa2VA', async () => {
  const bench = openRegionCaptions(join(folder, 'caps'), null)
  const said = ['a red star', 'this is the small blue square: region1']
  const answers = new Map(said.map((text, i) => [String(i), text]))
  const { metrics } = await bench.score(answers, { seed: 1, resamples: 10 })
  const second = meteor('the small blue square on the left', said[1]!)
  assert.equal(metrics['METEOR (nltk)']!.mean, (meteor('a red star', said[0]!) + second) / 2)
  assert.ok(metrics['CIDEr-D']!.mean > 0 && metrics['CIDEr-D']!.mean < 10)
  assert.notEqual(metrics['CIDEr-D (Sa2VA clean-up)']!.mean, metrics['CIDEr-D']!.mean)
  assert.equal(sa2vaCaption(said[1]!), 'th  the small blue square')
})

json('dlc/annotations.json', coco({}))
json('dlc/class_names.json', { 0: 'star', 1: 'glasses' })
const positive = {
  type: 'positive',
  question: 'Colour?',
  choices: [
    ['not said', 0],
    ['red', 1],
    ['wrong', -1],
  ],
}
const negative = {
  type: 'negative',
  question: 'Wheels?',
  choices: [
    ['mentioned', -1],
    ['not mentioned', 1],
  ],
}
json('dlc/qa.json', { 0: [positive, negative], 1: [positive, positive, negative] })

/** Replies by what the request says; keeps the requests. */
async function judgeServer(reply: (user: string) => string) {
  const asked: { messages: { role: string; content: string }[]; temperature: number; max_tokens: number }[] = []
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const part of request) body += part
    asked.push(JSON.parse(body))
    const content = reply(asked.at(-1)!.messages[0]!.content)
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ choices: [{ message: { role: 'assistant', content } }] }))
  })
  await new Promise<void>((done) => void server.listen(0, '127.0.0.1', () => done()))
  after(() => server.close())
  return { asked, baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1` }
}

test('DLC-Bench: the judge is asked each question alone, and a class not recognised leaves nothing above 0', async () => {
  const { asked, baseUrl } = await judgeServer((user) => {
    if (/likely to be (a|an) star/.test(user)) return 'A. Yes'
    if (/likely to be/.test(user)) return 'B. No'
    if (/Colour/.test(user)) return 'B. red'
    return 'B'
  })
  const client = new JudgeClient(JudgeConfig.parse({ enabled: true, baseUrl }), new JudgeStats())
  const ask = (user: string) => client.complete({ system: '', user, maxTokens: 300, temperature: 0 })
  const bench = openDlcBench(join(folder, 'dlc'), { images: null, ask })
  const answers = new Map([['0', 'A red star.'], ['1', 'Blue glasses {question}.']]) // biome-ignore format: pairs
  const { metrics, rows } = await bench.score(answers, { seed: 1, resamples: 10 })
  assert.deepEqual([metrics['Pos']!.mean, metrics['Neg']!.mean, metrics['Avg']!.mean], [0.5, 0.5, 0.5])
  assert.deepEqual(
    rows.map((r) => r['recognised']),
    [true, false],
  )
  assert.equal(asked.length, 2 + 5)
  assert.ok(
    asked.every(
      (a) => a.messages.length === 1 && a.messages[0]!.role === 'user' && a.temperature === 0 && a.max_tokens === 300,
    ),
  )
  assert.ok(
    asked.some((a) => a.messages[0]!.content.includes('Description: Blue glasses {question}.')),
    'a caption is not a template',
  )
  assert.ok(asked.some((a) => /Are the objects .* glasses/.test(a.messages[0]!.content)))
})

test('plural class names', () => {
  assert.deepEqual(['glasses', 'bus', 'glass', 'Sneakers', 'octopus', 'car'].map(isPlural), [
    true,
    false,
    false,
    true,
    false,
    false,
  ])
})

test('DLC-Bench without a judge says what to set', async () => {
  const bench = openDlcBench(join(folder, 'dlc'), { images: null, ask: null })
  await assert.rejects(bench.score(new Map(), { seed: 1 }), /rewards\.judge\.enabled: expected a judge.*Llama-3\.1-8B/)
})

test('answers of a file: every item once', () => {
  const { items } = openGarVqa(join(folder, 'gar'))
  writeFileSync(join(folder, 'a.jsonl'), '{"id": 0, "answer": "A"}\n{"id": "1", "text": "B"}\n')
  assert.throws(() => readAnswers(join(folder, 'a.jsonl'), items), /an answer for every item, got 2 of 3; 2 has none/)
  writeFileSync(join(folder, 'b.jsonl'), '{"id": 0, "answer": "A"}\n{"id": "0", "text": "B"}\n')
  assert.throws(() => readAnswers(join(folder, 'b.jsonl'), items), /line 2: id: expected each item once, got 0/)
})

test('a model answers items with several regions, and a second run asks nothing', async () => {
  const folderOf = fileURLToPath(new URL('../../assets/miniature', import.meta.url))
  const family = openFamily(folderOf, { dtype: 'float32' }) as GroundedFamily
  after(() => {
    for (const t of family.module.parameters().values()) t.dispose()
  })
  const bench = openGarVqa(join(folder, 'gar'))
  const host = { progress: () => undefined, stopping: () => false, yieldToLoop: async () => undefined }
  let asked = 0
  const model = describeWith(family, { maxNewTokens: 8, maxTiles: null })
  const describe = (questions: Parameters<typeof model>[0]) => {
    asked += questions.length
    return model(questions)
  }
  const run = { benchmark: bench, rows: join(folder, 'rows.jsonl'), header: { model: 'm' }, batch: 2, describe, host }
  assert.equal(await answerItems(run), true)
  assert.equal(await answerItems(run), true)
  assert.equal(asked, 3)
  const answers = readAnswers(run.rows, bench.items)
  assert.deepEqual([...answers.keys()].sort(), ['0', '1', '2'])
  assert.ok([...answers.values()].some((text) => text !== ''))
})

test('an answer is found under each of its names', () => {
  const file = join(folder, 'names.json')
  const rows = ['answer', 'text', 'caption', 'model_output'].map((name, id) => ({ id, [name]: `by ${name}` }))
  writeFileSync(file, JSON.stringify(rows))
  assert.deepEqual([...readAnswers(file, []).values()], ['by answer', 'by text', 'by caption', 'by model_output'])
})
