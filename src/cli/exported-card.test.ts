import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after } from 'node:test'
import sharp from 'sharp'
import { parse } from 'yaml'
import { withinMinute } from '../../tests/support/in-time.ts'
import { RunWriter, type Sample } from '../tracking/index.ts'
import { licenseOf, modelName, runOfCheckpoint, writeExportedCard } from './exported-card.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-card-'))
after(() => rmSync(folder, { recursive: true, force: true }))

const metrics = (mean: number) => ({ 'cycle/iou': { mean, low: mean - 0.1, high: mean + 0.1 } })

function sample(step: number, id: string, total: number): Sample {
  const shown = [
    { kind: 'points', by: 'policy', size: [8, 8], points: [{ x: 2, y: 2, positive: true }] },
    { kind: 'text', by: 'policy', text: `<b>${id}</b>` },
  ] as const
  return {
    step,
    loop: 'loop1',
    id,
    k: 0,
    shown,
    rewards: { iou: total },
    total,
    advantage: 0,
    logp: -1,
    length: 3,
    image: 'a.png',
  }
}

async function makeRun(): Promise<string> {
  const run = join(folder, 'run')
  const environment = { product: '1.2.3', torch: '2.1', device: 'cpu', command: ['train', '--seed', '5'] }
  const config = { seed: 5, model: '/somewhere/base', dataPath: '/somewhere/data', rl: { beta: 0.1, preset: null } }
  const writer = RunWriter.create(run, { config, environment })
  writer.start({ records: 40 })
  writer.eval(0, 'before', 8, metrics(0.2))
  writer.samples([sample(1, 'early', 0.9), sample(9, 'good', 0.8), sample(9, 'bad', 0.1), sample(12, 'later', 1)])
  writer.eval(5, 'step 5', 8, metrics(0.4))
  writer.step(10, { loss: 1 })
  writer.eval(10, 'after', 8, metrics(0.7))
  writer.checkpoint(10, 'checkpoint_step_10')
  await writer.close()
  mkdirSync(join(run, 'images'), { recursive: true })
  const grey = { create: { width: 8, height: 8, channels: 3 as const, background: '#888' } }
  await sharp(grey)
    .png()
    .toFile(join(run, 'images', 'a.png'))
  return run
}

function makeModel(name: string, config: object): string {
  const dir = join(folder, name)
  mkdirSync(dir)
  writeFileSync(join(dir, 'config.json'), JSON.stringify(config))
  return dir
}

test('a licence is read in one pass over a model card of 100,000 fields', async () => {
  const source = makeModel('many', {})
  const fields = Array.from({ length: 100_000 }, (_, i) => `k${i}: 1\n`)
  writeFileSync(join(source, 'README.md'), `---\n${fields.join('')}license: mit\n---\n`)
  assert.equal(
    withinMinute(() => licenseOf(source)),
    'mit',
  )
})

test('the model card of an export has base, licence, recipe, data, metrics, picture, versions and loading', async () => {
  const run = await makeRun()
  const source = makeModel('base', { _name_or_path: 'org/base' })
  writeFileSync(join(source, 'README.md'), '---\nlicense: mit\n---\n# base\n')
  const out = makeModel('out', { model_type: 'sa2va_chat', auto_map: { AutoModel: 'x.Y' } })
  assert.deepEqual(await writeExportedCard({ out, source, run, step: 10 }), ['README.md', 'roundtrip.png'])
  const text = readFileSync(join(out, 'README.md'), 'utf8')
  const head = parse(/^---\n([\s\S]*?)\n---/.exec(text)![1]!) as Record<string, unknown>
  assert.deepEqual([head.base_model, head.license], ['org/base', 'mit'])
  assert.match(text, /^org\/base, trained with GRPO in 10 steps /m)
  assert.match(
    text,
    /\| cycle\/iou \| 0\.200 \[0\.100, 0\.300\] \| 0\.700 \[0\.600, 0\.800\] \| \+0\.500, intervals apart \|/,
  )
  assert.match(text, /^data: 40 records, 8 evaluated\.$/m)
  assert.match(text, /\| seed \| 5 \|\n\| rl\.beta \| 0\.1 \|/)
  assert.match(text, /record good; policy: \\<b\\>good/)
  assert.match(text, /\| roundtrip \| 1\.2\.3 \|\n\| torch \| 2\.1 \|/)
  assert.match(text, /AutoModel\.from_pretrained\("out", torch_dtype="auto", trust_remote_code=True\)/)
  assert.doesNotMatch(text, /somewhere/)
  assert.equal((await sharp(join(out, 'roundtrip.png')).metadata()).format, 'png')
})

test('metrics are those of the exported weights alone: of their step, and of no EMA copy', async () => {
  const [run, source] = [join(folder, 'run'), join(folder, 'base')]
  const out = makeModel('middle', {})
  await writeExportedCard({ out, source, run, step: 5 })
  assert.match(readFileSync(join(out, 'README.md'), 'utf8'), /\| 0\.400 \[0\.300, 0\.500\] \|/)
  await writeExportedCard({ out, source, run, step: 7 })
  assert.match(
    readFileSync(join(out, 'README.md'), 'utf8'),
    /\| cycle\/iou \| 0\.200 \[0\.100, 0\.300\] \| none \| {2}\|/,
  )
  await writeExportedCard({ out, source, run, step: 10, ema: true })
  assert.match(readFileSync(join(out, 'README.md'), 'utf8'), /did not evaluate these weights/)
})

test('a checkpoint beside a log is of that run; an adapter from elsewhere is of none', () => {
  const run = join(folder, 'run')
  assert.deepEqual(runOfCheckpoint(join(run, 'checkpoint_step_5')), { run, step: 5 })
  assert.equal(runOfCheckpoint(join(folder, 'checkpoint_step_5')), null)
  assert.equal(runOfCheckpoint(join(folder, 'out')), null)
})

test('a folder of the hub cache is called by its name there', () => {
  assert.equal(modelName('/cache/models--ByteDance--Sa2VA-4B/snapshots/abc'), 'ByteDance/Sa2VA-4B')
})
