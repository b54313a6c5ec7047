import assert from 'node:assert/strict'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { type TestContext, test } from 'node:test'
import { fillAdapters, goldenFolder } from '../../../tests/support/sa2va.ts'
import { exportModel, openWeights, readAll, writeWeights } from '../../checkpoint/index.ts'
import { loraTargets } from '../../llm/index.ts'
import { addLora, type Linear, linears, tensorAt, trainOnly } from '../../nn/index.ts'
import { type DType, memory, noGrad, tidy } from '../../tensor/index.ts'
import { exportSa2VA, type Loaded, openSa2VA } from './load.ts'

function scratch(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'export-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

function free({ model }: Loaded): void {
  for (const t of model.parameters().values()) t.dispose()
}

function differingNames(from: string, to: string): string[] {
  const [a, b] = [openWeights(from), openWeights(to)]
  assert.deepEqual([...b.names].sort(), [...a.names].sort())
  for (const name of a.names) assert.deepEqual([name, b.entry(name).dtype], [name, a.entry(name).dtype])
  return a.names.filter((name) => !Buffer.from(a.read(name)).equals(Buffer.from(b.read(name))))
}

function asNumbers(dir: string, name: string): Float32Array {
  const bytes = Uint8Array.from(openWeights(dir).read(name))
  return new Float32Array(bytes.buffer)
}

/** W + scale B A by a written-out loop in float64. */
function mergedByHand(base: ArrayLike<number>, linear: Linear): Float64Array {
  const [out, rank] = linear.lora_B!.weight.shape as [number, number]
  const columns = linear.lora_A!.weight.size(1)
  const [a, b] = tidy(() => [linear.lora_A!.weight.numbers(), linear.lora_B!.weight.numbers()]) as [number[], number[]]
  return Float64Array.from({ length: out * columns }, (_, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns]
    let sum = 0
    for (let r = 0; r < rank; r++) sum += b[row * rank + r]! * a[r * columns + column]!
    return base[i]! + linear.adapter!.scale * sum
  })
}

/** Half the distance between float32 numbers around x, with room for the order of a float64 sum. */
function halfStep(x: number): number {
  return 2 ** Math.max(-149, Math.floor(Math.log2(Math.abs(x) || 1e-45)) - 23) * (0.5 + 1e-6)
}

for (const dtype of ['bfloat16', 'float32'] as const) {
  test(`a float32 folder opened in ${dtype} and not trained is exported in the same bytes, every file`, (t) => {
    const out = join(scratch(t), 'out')
    const before = memory().tensors
    const loaded = openSa2VA(goldenFolder, { dtype })
    addLora(loaded.model.language_model, loraTargets('Qwen2ForCausalLM'), { rank: 4, alpha: 8, seed: 1 }) // B is zero
    trainOnly(loaded.model, [/^mlp1\./, /^text_hidden_fcs\./]) // float32 masters of rounded weights, no step taken
    exportSa2VA(loaded, out)
    assert.deepEqual(readdirSync(out).sort(), readdirSync(goldenFolder).sort())
    for (const file of readdirSync(goldenFolder))
      assert.ok(readFileSync(join(out, file)).equals(readFileSync(join(goldenFolder, file))), file)
    free(loaded)
    assert.equal(memory().tensors, before)
  })
}

test('after training in bfloat16 only trained names differ, and merged weights are float64 arithmetic rounded once', (t) => {
  const out = join(scratch(t), 'out')
  const loaded = openSa2VA(goldenFolder, { dtype: 'bfloat16' })
  addLora(loaded.model.language_model, loraTargets('Qwen2ForCausalLM'), { rank: 4, alpha: 8, seed: 1 })
  fillAdapters(loaded.model, 9)
  const trained = trainOnly(loaded.model, [/^text_hidden_fcs\./])
  noGrad(() => tidy(() => void trained.forEach((slot) => void tensorAt(slot).add_(1e-4))))
  exportSa2VA(loaded, out)
  const adapted = linears(loaded.model).filter(([, linear]) => linear.lora_A)
  const names = [...adapted.map(([path]) => `${path}.weight`), ...trained.map((slot) => slot.name)]
  assert.deepEqual(differingNames(goldenFolder, out).sort(), names.sort())
  for (const [path, linear] of adapted) {
    const exact = mergedByHand(asNumbers(goldenFolder, `${path}.weight`), linear)
    asNumbers(out, `${path}.weight`).forEach((written, i) => {
      assert.ok(Math.abs(written - exact[i]!) <= halfStep(exact[i]!), `${path}[${i}]: ${written} for ${exact[i]}`)
    })
  }
  for (const slot of trained)
    assert.deepEqual(
      [...asNumbers(out, slot.name)],
      tidy(() => tensorAt(slot).numbers()),
      slot.name,
    )
  free(loaded)
})

test('what is exported does not depend on the dtype the model was opened in', (t) => {
  const files = (['bfloat16', 'float32'] as DType[]).map((dtype) => {
    const out = join(scratch(t), 'out')
    const loaded = openSa2VA(goldenFolder, { dtype })
    addLora(loaded.model.language_model, loraTargets('Qwen2ForCausalLM'), { rank: 4, alpha: 8, seed: 1 })
    fillAdapters(loaded.model, 9)
    exportSa2VA(loaded, out)
    free(loaded)
    return readFileSync(join(out, 'model.safetensors'))
  })
  assert.ok(files[0]!.equals(files[1]!))
})

/** A snapshot in the layout of the hub's cache: every file is a link to a blob of the same model. */
function hubSnapshot(t: TestContext): { blobs: string; snapshot: string } {
  const repo = join(scratch(t), 'models--org--name')
  const [blobs, snapshot] = [join(repo, 'blobs'), join(repo, 'snapshots', 'abc123')]
  cpSync(goldenFolder, blobs, { recursive: true })
  mkdirSync(snapshot, { recursive: true })
  for (const name of readdirSync(blobs)) symlinkSync(join('..', '..', 'blobs', name), join(snapshot, name))
  return { blobs, snapshot }
}

test('a snapshot of the hub cache is exported whole, with subfolders and files of other tools', (t) => {
  const { blobs, snapshot } = hubSnapshot(t)
  writeFileSync(join(blobs, 'f00'), 'not weights')
  symlinkSync(join('..', '..', 'blobs', 'f00'), join(snapshot, 'training_args.bin'))
  mkdirSync(join(snapshot, 'figures'))
  symlinkSync(join('..', '..', '..', 'blobs', 'f00'), join(snapshot, 'figures', 'a.txt'))
  const expected = readdirSync(snapshot).sort()
  // older weights in another spelling, and what tools leave beside a download, would be taken for the model's
  for (const name of ['pytorch_model.bin', 'pytorch_model.bin.index.json']) writeFileSync(join(snapshot, name), 'old')
  for (const name of ['.git', '.cache']) mkdirSync(join(snapshot, name))
  const linked = join(scratch(t), 'model')
  symlinkSync(snapshot, linked) // the folder itself may be named by a link
  const loaded = openSa2VA(linked)
  const out = join(snapshot, 'exported') // inside the source: not copied into itself
  exportSa2VA(loaded, out)
  assert.deepEqual(readdirSync(out).sort(), expected)
  assert.equal(readFileSync(join(out, 'figures', 'a.txt'), 'utf8'), 'not weights')
  assert.ok(readFileSync(join(out, 'config.json')).equals(readFileSync(join(goldenFolder, 'config.json'))))
  symlinkSync(resolve(blobs, 'gone'), join(snapshot, 'dangling.txt'))
  assert.throws(() => exportSa2VA(loaded, join(scratch(t), 'x')), /dangling\.txt.*expected a file or a link to one/s)
  free(loaded)
})

test('export copies nothing that a link leads to outside the model folder, and no linked folder; each is named', (t) => {
  const [source, outside] = [join(scratch(t), 'model'), scratch(t)]
  cpSync(goldenFolder, source, { recursive: true })
  writeFileSync(join(outside, 'key'), 'PRIVATE')
  writeFileSync(join(source, 'own.txt'), 'own')
  symlinkSync('own.txt', join(source, 'again.txt'))
  mkdirSync(join(source, 'sub'))
  symlinkSync(join('..', 'own.txt'), join(source, 'sub', 'up.txt'))
  symlinkSync(join(outside, 'key'), join(source, 'NOTES.md'))
  symlinkSync('NOTES.md', join(source, 'chain.json'))
  symlinkSync(outside, join(source, 'sub', 'tree'))
  symlinkSync('..', join(source, 'sub', 'back'))
  symlinkSync('sub', join(source, 'twin'))
  // a clone that only looks like the hub's cache: its blobs are those of another folder
  symlinkSync(outside, join(source, '..', 'blobs'))
  symlinkSync(join('..', 'blobs', 'key'), join(source, 'blob.txt'))
  const loaded = openSa2VA(source)
  const written: string[] = []
  const stderr = t.mock.method(process.stderr, 'write', (text: string) => written.push(text) > 0)
  const out = join(scratch(t), 'out')
  exportSa2VA(loaded, out)
  stderr.mock.restore()
  free(loaded)
  const leftOut = ['NOTES.md', 'chain.json', 'sub/tree', 'sub/back', 'twin', 'blob.txt']
  const expected = [...readdirSync(goldenFolder), 'own.txt', 'again.txt', 'sub'].sort()
  assert.deepEqual(readdirSync(out).sort(), expected)
  assert.deepEqual(readdirSync(join(out, 'sub')), ['up.txt'])
  for (const name of ['again.txt', 'sub/up.txt']) assert.equal(readFileSync(join(out, name), 'utf8'), 'own')
  for (const name of leftOut)
    assert.ok(
      written.some((line) => line.includes(`${join(source, name)}: a link`)),
      name,
    )
})

test("a snapshot whose blobs are a link, or that links to another model's blobs, is left out too", (t) => {
  const { snapshot } = hubSnapshot(t)
  const other = join(snapshot, '..', '..', '..', 'models--org--other', 'blobs')
  mkdirSync(other, { recursive: true })
  writeFileSync(join(other, 'key'), 'PRIVATE')
  symlinkSync(join(other, 'key'), join(snapshot, 'extra.json'))
  symlinkSync('../../blobs', join(snapshot, 'all'))
  const loaded = openSa2VA(snapshot)
  const out = join(scratch(t), 'out')
  exportSa2VA(loaded, out)
  free(loaded)
  assert.deepEqual(readdirSync(out).sort(), readdirSync(goldenFolder).sort())
})

test('weights that are not finite in the stored dtype are not exported, and nothing is left in the folder', (t) => {
  const source = scratch(t)
  cpSync(goldenFolder, source, { recursive: true })
  const all = readAll(join(source, 'model.safetensors'))
  rmSync(join(source, 'model.safetensors'))
  writeWeights(
    source,
    Array.from(all, ([name, entry]) => ({ name, ...entry })),
    { maxShardBytes: 1e6 },
  )
  for (const [value, got] of [
    [Number.NaN, 'NaN'],
    [Number.POSITIVE_INFINITY, 'infinite'],
  ] as const) {
    const out = scratch(t)
    writeFileSync(join(out, 'mine.txt'), '')
    const loaded = openSa2VA(source)
    const name = 'text_hidden_fcs.0.bias'
    noGrad(() => tidy(() => void loaded.model.parameters().get(name)!.narrow(0, 3, 1).fill_(value)))
    assert.throws(() => exportSa2VA(loaded, out), new RegExp(`${name}.*expected finite weights.*${got}`, 's'))
    assert.deepEqual(readdirSync(out), ['mine.txt'])
    free(loaded)
  }
})

test('a folder that names its tensors otherwise keeps its names', (t) => {
  const source = scratch(t)
  const stored = Array.from(readAll(join(goldenFolder, 'model.safetensors')), ([name, entry]) => ({
    name: `x.${name}`,
    ...entry,
  }))
  writeWeights(source, stored)
  const loaded = openSa2VA(goldenFolder)
  noGrad(() => tidy(() => void loaded.model.parameters().get('mlp1.1.bias')!.add_(1)))
  const out = scratch(t)
  exportModel(loaded.model, source, out, { ourName: (name) => name.slice(2) })
  assert.deepEqual(differingNames(source, out), ['x.mlp1.1.bias'])
  free(loaded)
})
