// Every command in the pages of docs/ is run as it is printed, with a miniature for the checkpoint, generated records for the data, and
// flags that make it short. A command that the table does not know fails the test. README.md has its own test.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import test, { after, before } from 'node:test'
import { fileURLToPath } from 'node:url'
import { encodePng } from '../../src/image/index.ts'
import { encodeRle, maskToPng } from '../../src/mask/index.ts'
import { makeScene, sceneExample } from '../../src/scenes/index.ts'
import { scratch } from '../support/runs.ts'
import { writeTinySam } from '../support/tiny-sam.ts'
import { program, roundtrip } from './cli.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const folder = scratch('pages')
after(() => rmSync(folder, { recursive: true, force: true }))

const cpu = '--device cpu --dtype float32 --threads 1 --rl.maxCompletionLength 8'
const tiny = `${cpu} --data.workers 0 --lora.rank 4`
const lesson = `${tiny} --maxSteps 1 --batchSize 1 --rl.gradientAccumulationSteps 1 --evalRecords 0`
const step = `${lesson} --rl.numGenerations 2`
const needsLauncher = 'needs a launcher, several hosts or GPUs'
const slow = 'takes hours, or runs the tests themselves'

/** What a command of a page gets to be short; a `skip` is a reason why it is not run. The first row that fits counts. */
const table: readonly { command: RegExp; extra?: string; skip?: string }[] = [
  { command: /^(torchrun|srun|#!|tar|bash|sha256sum) ?/, skip: needsLauncher },
  { command: /tools\/|npm run (faults|bench)/, skip: slow },
  { command: /--task \.\/brief\.ts/, skip: 'imports the installed package; package.test.ts trains what `new` writes' },
  { command: /^npm run demo -- --watch/, skip: 'watch is run below, the demo by demo.test.ts' },
  { command: /^npm run demo -- --photos/, skip: 'needs packages of npm and Debian' },
  { command: /^npm run demo/, extra: '--maxSteps 1 --batchSize 1 --evalRecords 2' },
  { command: /^node scripts\/setup\.mjs|roundtrip-rl setup$/, extra: '--no-install --quiet' },
  {
    command: /roundtrip-rl train --task segment/,
    extra: '--device cpu --threads 1 --data.workers 0 --maxSteps 1 --batchSize 1 --rl.numGenerations 2 --evalRecords 0',
  },
  { command: /roundtrip-rl sft .*--recipe points/, extra: `${lesson} --points.wording short` },
  { command: /roundtrip-rl sft /, extra: lesson },
  { command: /roundtrip-rl train .*--recipe points/, extra: `${step} --points.wording short` },
  { command: /roundtrip-rl train .*groupFilter/, extra: `${step} --rl.maxResampleTimes 1` },
  { command: /roundtrip-rl train /, extra: step },
  { command: /roundtrip-rl eval .*--task reason/, extra: `${cpu} --reason.imageSize 112 --rl.maxCompletionLength 8` },
  { command: /roundtrip-rl eval --benchmark .*--model/, extra: cpu },
  { command: /roundtrip-rl eval --(benchmark|compare)/, extra: '' },
  { command: /roundtrip-rl eval /, extra: `${cpu} --data.workers 0 --records 2` },
  { command: /roundtrip-rl doctor /, extra: tiny },
  { command: /roundtrip-rl data make-scenes/, extra: '--n 4' },
  { command: /roundtrip-rl plan --model/, extra: '--lora.rank 4' },
  { command: /roundtrip-rl verify --against/, skip: 'needs Python; src/cli/certificate.test.ts runs it' },
  { command: /roundtrip-rl (data|score|plan|export|caption|points|settings|verify|new) ?/, extra: '' },
  { command: /roundtrip-rl adapt/, skip: 'adapt.test.ts runs it with a small segmenter' },
  { command: /roundtrip-rl compare/, skip: 'behaviour.test.ts runs it with a run and a model' },
  { command: /roundtrip-rl watch/, skip: 'serves until it is ended; watch.test.ts' },
]

/** Names in the pages -> what is here in their place. */
const stand: readonly (readonly [RegExp, string])[] = [
  [/(?<=caption --model )DIR(?=.*overlay)/, 'tests/fixtures/golden/sa2va-qwen2_5_vl-tiny'],
  [/\bminisam\b/, 'sam'],
  [/^npx roundtrip-rl/, `node ${program}`],
  [/^npm run demo --/, `node ${program} demo`],
  [/^node scripts\//, `node ${join(root, 'scripts')}/`],
  [/\/models\/Sa2VA-\w+|(?<=--model )DIR\b/, 'assets/miniature'],
  [/Qwen2\.5-VL-3B-Instruct/, 'assets/points-miniature/policy'],
  [/sam2\.1_hiera_large\.pt/, 'assets/points-miniature/sam2'],
  [/(?<=--dataPath )refcocog/, 'neighbours:8'],
  [/DATA_ROOT/, 'tests/fixtures/golden/benchmarks-tiny'],
  [/masks\.jsonl(?=$| )(?<=--predictions masks\.jsonl)/, 'tests/fixtures/golden/benchmarks-tiny/predictions.jsonl'],
  [/(?<=--data )PATH|(?<=--dataPath )DATA|(?<=inspect |preview )PATH/, 'scenes:16'],
  [/checkpoint_step_200/, 'checkpoint_step_1'],
  [/\bOUT\b|(?<=--out )DIR\b/, 'made'],
]

function commandsOf(text: string): string[] {
  const blocks = [...text.matchAll(/^```(?:sh|bash)\n([\s\S]*?)^```$/gm)].map((match) => match[1]!)
  const lines = blocks.flatMap((block) => block.replace(/\\\n\s*/g, ' ').split('\n'))
  return lines.map((line) => line.replace(/\s+# .*$|^#[^!].*$/, '').trim()).filter((line) => line !== '')
}

const pages = readdirSync(join(root, 'docs')).filter((name) => name.endsWith('.md'))
const textOf = (page: string) => readFileSync(join(root, 'docs', page), 'utf8')
const rowOf = (command: string) => table.find((row) => row.command.test(command))

let judge = ''
const server = createServer((_request, response) => {
  response.setHeader('content-type', 'application/json')
  const message = { role: 'assistant', content: '7' }
  response.end(JSON.stringify({ model: 'm', choices: [{ index: 0, finish_reason: 'stop', message }] }))
})

/** Files that the pages name. */
async function writeInputs(): Promise<void> {
  for (const name of ['assets', 'tests', 'recipes']) symlinkSync(join(root, name), join(folder, name))
  const { image, mask } = sceneExample(makeScene(5, 0))
  for (const name of ['photo.png', 'cup.jpg']) writeFileSync(join(folder, name), await encodePng(image))
  writeFileSync(join(folder, 'region.png'), await maskToPng(mask))
  const [size, counts] = [[mask.height, mask.width], encodeRle(mask).counts]
  const line = (value: unknown) => `${JSON.stringify(value)}\n`
  writeFileSync(join(folder, 'pairs.jsonl'), line({ id: '7', reference: 'a red cup', hypothesis: 'a cup' }))
  const masks = { id: '7', reference: { size, counts }, hypothesis: { size, counts } }
  writeFileSync(join(folder, 'masks.jsonl'), line(masks))
  writeFileSync(join(folder, 'mine.yaml'), /```yaml\n(# mine\.yaml[\s\S]*?)```/.exec(textOf('recipes.md'))![1]!)
  writeTinySam(join(folder, 'sam'))
  await writeData(await encodePng(image))
}

/** The list and the COCO folder of docs/data.md. */
async function writeData(png: Uint8Array): Promise<void> {
  mkdirSync(join(folder, 'mydata/images'), { recursive: true })
  mkdirSync(join(folder, 'coco/annotations'), { recursive: true })
  const list = /```json\n(\[\{"image": "0001[\s\S]*?)```/.exec(textOf('data.md'))![1]!
  writeFileSync(
    join(folder, 'mydata/annotations.json'),
    list.replaceAll(/\d{3}(?=[,\]])/g, (n) => String(Number(n) % 90)),
  )
  writeFileSync(join(folder, 'mydata/images/0001.jpg'), png)
  for (const split of ['train', 'val']) {
    mkdirSync(join(folder, `coco/${split}2017`), { recursive: true })
    const images = Array.from({ length: 4 }, (_, i) => ({ id: i, file_name: `${i}.jpg`, width: 112, height: 112 }))
    for (const { file_name } of images) writeFileSync(join(folder, `coco/${split}2017/${file_name}`), png)
    const box = {
      category_id: 1,
      iscrowd: 0,
      bbox: [10, 10, 30, 30],
      area: 900,
      segmentation: [[10, 10, 40, 10, 40, 40, 10, 40]],
    }
    const annotations = images.map(({ id }) => ({ id, image_id: id, ...box }))
    const captions = images.map(({ id }) => ({ id, image_id: id, caption: 'a square' }))
    const categories = [{ id: 1, name: 'square' }]
    const write = (name: string, value: unknown) =>
      writeFileSync(join(folder, `coco/annotations/${name}_${split}2017.json`), JSON.stringify(value))
    write('instances', { images, annotations, categories })
    write('captions', { images, annotations: captions })
  }
}

/** A run, and two results to compare, that the pages take for granted. */
async function writeRuns(): Promise<void> {
  const flags = ['--model', join(root, 'assets/miniature'), '--data', 'scenes:8', '--output', join(folder, 'runs/gar')]
  const { code, err } = await roundtrip('train', ...flags, ...step.split(' '))
  assert.equal(code, 0, err)
  const golden = join(root, 'tests/fixtures/golden/benchmarks-tiny')
  for (const out of ['before', 'after']) {
    const data = ['--data', golden, '--predictions', join(golden, 'predictions.jsonl'), '--out', join(folder, out)]
    const scored = await roundtrip('eval', '--benchmark', 'refcoco', '--split', 'val', ...data)
    assert.equal(scored.code, 0, scored.err)
  }
}

before(async () => {
  await new Promise<void>((done) => void server.listen(0, '127.0.0.1', done))
  judge = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`
  await writeInputs()
  await writeRuns()
})
after(() => server.close())

function shell(command: string): Promise<{ code: number | null; text: string }> {
  const child = spawn('bash', ['-c', command], { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (part) => (text += part))
  return new Promise((done) => child.on('close', (code) => done({ code, text })))
}

test('the table knows every command of the pages', () => {
  const all = pages.flatMap((page) => commandsOf(textOf(page)))
  assert.ok(all.length > 50, String(all.length))
  assert.deepEqual(
    all.filter((command) => !rowOf(command)),
    [],
  )
})

/** The run folder of a `train` or `sft` command; the next page starts a new run in it. */
const runFolder = (command: string) =>
  /roundtrip-rl (train|sft) /.test(command) ? (/--output (\S+)/.exec(command)?.[1] ?? defaultFolder(command)) : null
const defaultFolder = (command: string) => (command.includes('roundtrip-rl sft') ? 'runs/sft' : 'runs/train')

for (const page of pages.filter((name) => commandsOf(textOf(name)).some((command) => !rowOf(command)?.skip)))
  test(`the commands of docs/${page} run`, async () => {
    const started = new Set<string>()
    for (const command of commandsOf(textOf(page))) {
      const row = rowOf(command)
      if (!row || row.skip) continue
      const here = stand.reduce((text, [name, instead]) => text.replace(name, instead), command)
      const given = `${here.replace('http://localhost:9100/v1', judge)} ${row.extra}`
      const judged = given.includes('--recipe judge') ? ` --llm_judge_base_url ${judge}` : ''
      const output = runFolder(command)
      if (output && !(command.includes('--output') && started.has(output)))
        rmSync(join(folder, output), { recursive: true, force: true })
      const { code, text } = await shell(given + judged)
      if (output && command.includes('--output')) started.add(output)
      assert.equal(code, 0, `${command}\n${given}\n${text}`)
    }
  })
