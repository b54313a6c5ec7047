// `lora.targets`: which layers get adapters, what PEFT reads, and that runs with other targets learn, resume and export.
import assert from 'node:assert/strict'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { hostOf, makeToy, scratch, toyRun } from '../../tests/support/runs.ts'
import { openWeights, readTensors } from '../checkpoint/index.ts'
import { teacherForce } from '../llm/index.ts'
import { isVqa, modelSizes, openFamily, releasedConfig } from '../models/index.ts'
import { linears, tensorAt } from '../nn/index.ts'
import { makePointScene } from '../scenes/index.ts'
import { backward, noGrad, randn, type Tensor, tidy } from '../tensor/index.ts'
import { type RunInput, resolveRun } from './config.ts'
import { disposeModel, openModel } from './device.ts'
import { Learner } from './learner.ts'
import { loadTrained } from './load-trained.ts'
import { train } from './train.ts'

const golden = join(import.meta.dirname, '../../tests/fixtures/golden')
const folder = scratch('targets')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

const placing = (output: string, input: RunInput = {}) =>
  resolveRun({
    ...{
      task: 'points',
      model: join(golden, 'qwen2_5_vl-tiny'),
      output: join(folder, output),
      dataPath: 'neighbours:4',
    },
    ...{ device: 'cpu', dtype: 'float32', threads: 1, evalRecords: 0, batchSize: 1, maxSteps: 2, tensorboard: false },
    ...{ checkGroups: false, data: { workers: 0 }, rl: { numGenerations: 2, maxCompletionLength: 4 } },
    points: { sam: join(golden, 'sa2va-tiny'), imageSize: 56, wording: 'short', keepEasy: null },
    ...input,
    lora: { rank: 4, targets: 'all-linear', ...input.lora },
  })

/** Names of the layers with adapters. */
function adaptedOf(config: ReturnType<typeof resolveRun>): string[] {
  const family = openModel(config)
  const learner = new Learner(family, config)
  const names = linears(learner.family.module).flatMap(([name, linear]) => (linear.lora_A ? [name] : []))
  disposeModel(family)
  return names
}

test('attention, all linear layers or an expression are adapted; the vision tower never is', () => {
  const of = (targets: string | null) => adaptedOf(placing('none', { lora: { targets } }))
  assert.deepEqual(of(null), of('attention'))
  assert.deepEqual([of('attention').length, of('all-linear').length], [3 * 4, 3 * 7])
  assert.ok(of('all-linear').every((name) => /^model\.layers\.\d\.(self_attn|mlp)\.\w+_proj$/.test(name)))
  assert.deepEqual(of('.*\\.1\\.mlp\\.(up|down)_proj'), ['model.layers.1.mlp.up_proj', 'model.layers.1.mlp.down_proj'])
  assert.equal(of('.*').length, 3 * 7)
  assert.throws(() => of('q_proj'), /lora\.targets: expected layers of the language model .* got q_proj, no match/)
  assert.throws(() => of('visual\\..*'), /lora\.targets: .*no match/)
  assert.throws(() => of('('), /lora\.targets: expected attention, all-linear, or a regular expression, got \(/)
})

test('the projector of Sa2VA is adapted if it does not train as a whole, and its names are those of the whole model', async () => {
  const lora = { rank: 4, targets: 'mlp1\\..*|.*\\.0\\.self_attn\\.q_proj' }
  const config = (train: RunInput['train']) =>
    toyRun(toy, join(folder, 'projector'), { lora, train, maxSteps: 1, checkGroups: false })
  assert.throws(
    () => adaptedOf(config(['mlp1', 'lora'])),
    /lora\.targets: expected layers that do not .*mlp1 is in train/,
  )
  const adapted = ['mlp1.1', 'mlp1.3', 'language_model.model.layers.0.self_attn.q_proj']
  assert.deepEqual(adaptedOf(config(['lora'])).sort(), [...adapted].sort())
  await train(config(['lora']), hostOf())
  const stored = openWeights(join(folder, 'projector', 'checkpoint_step_1', 'adapter_model.safetensors'))
  const names = adapted.flatMap((name) => ['A', 'B'].map((part) => `base_model.model.${name}.lora_${part}.weight`))
  assert.deepEqual([...stored.names].sort(), names.sort())
  const family = openFamily(toy, { dtype: 'float32' })
  loadTrained(family, join(folder, 'projector'))
  const b = family.module.parameters().get('mlp1.3.lora_B.weight')!
  assert.ok(tidy(() => b.abs().max().item()) > 0, 'the projector learned')
  disposeModel(family)
})

test('a run with adapters on the MLPs is stopped, resumed, read by PEFT as meant, and exported', async () => {
  await train(placing('whole'), hostOf())
  await train(placing('parts', { maxSteps: 1 }), hostOf())
  await train(placing('parts'), hostOf())
  const bytes = (run: string) => readFileSync(join(folder, run, 'checkpoint_step_2', 'adapter_model.safetensors'))
  assert.deepEqual(bytes('parts'), bytes('whole'))
  const config = JSON.parse(readFileSync(join(folder, 'whole/checkpoint_step_2/adapter_config.json'), 'utf8'))
  const targets: string[] = config.target_modules
  assert.equal(targets.length, 3 * 7)
  for (const path of targets) assert.match(path, /^model\.language_model\.layers\.\d\.(self_attn|mlp)\.\w+_proj$/)
  const family = openFamily(join(golden, 'qwen2_5_vl-tiny'), { dtype: 'float32' })
  loadTrained(family, join(folder, 'whole'))
  const [layer, out] = ['model.layers.2.mlp.down_proj', join(folder, 'exported')]
  family.export(out)
  const [before, merged] = [join(golden, 'qwen2_5_vl-tiny'), out].map((dir) => readTensors(openWeights(dir)))
  tidy(() => {
    const of = (part: string) => family.module.parameters().get(`${layer}.lora_${part}.weight`)!
    const want = before!.get(`${layer}.weight`)!.add(of('B').matmul(of('A')).mul(2))
    assert.ok(of('B').abs().max().item() > 0)
    assert.ok(merged!.get(`${layer}.weight`)!.sub(want).abs().max().item() < 1e-6)
  })
  disposeModel(family)
})

/** sum of w log p over the tokens of two answers. */
function lossOf(model: Parameters<typeof teacherForce>[0], prompt: never, answers: readonly Int32Array[]): Tensor {
  const pass = teacherForce(model, prompt, answers)
  return pass.logProbs().logps.mul(0.5).sum()
}

test('gradients of adapters on gate, up and down are the slopes of the loss', () => {
  const config = placing('none')
  const family = openModel(config)
  const learner = new Learner(family, config)
  assert.ok(isVqa(family))
  const features = family.encode([family.prepare(makePointScene(1, 0).record.image)])[0]!
  const prompt = family.ask(features, 'where?') as never
  const answers = ['[[3, 4]]', '[]'].map((text) => family.completion(text))
  for (const slot of learner.slots)
    noGrad(() => tidy(() => void tensorAt(slot).copy_(randn(tensorAt(slot).shape).mul(0.1))))
  tidy(() => backward(lossOf(family.model, prompt, answers)))
  for (const kind of [
    'gate_proj.lora_A',
    'gate_proj.lora_B',
    'up_proj.lora_A',
    'up_proj.lora_B',
    'down_proj.lora_A',
    'down_proj.lora_B',
  ]) {
    // biome-ignore format: one line
    const tensors = learner.slots.filter((slot) => slot.name.includes(kind)).map(tensorAt)
    assert.equal(tensors.length, 3, kind)
    const along = tensors.map((t) => noGrad(() => t.grad()!.detach().clone()))
    const squared = tidy(() => along.reduce((sum, g) => sum + g.mul(g).sum().item(), 0))
    const step = 0.01 / Math.sqrt(squared)
    const moved = (by: number) => {
      noGrad(() => tidy(() => tensors.forEach((t, i) => void t.add_(along[i]!, { alpha: by }))))
      return noGrad(() => tidy(() => lossOf(family.model, prompt, answers).item()))
    }
    const [up, down] = [moved(step), moved(-2 * step)]
    moved(step)
    const slope = (up - down) / (2 * step)
    assert.ok(Math.abs(slope / squared - 1) < 5e-3, `${kind}: slope ${slope}, squared gradient ${squared}`)
    for (const g of along) g.dispose()
  }
  learner.optim.zeroGrad()
  for (const t of Object.values(family.tensorsOf(features))) t.dispose()
  disposeModel(family)
})

test('the planner counts the layers that are adapted, and the layers with kernels if the same packs are in each', () => {
  const raw = releasedConfig('1b')
  const [all, attention, one] = [null, 'attention', '.*\\.0\\.mlp\\.up_proj'].map((t) => modelSizes(raw, t))
  const layers = all!.llm.num_hidden_layers
  assert.deepEqual([all!, attention!, one!].map((s) => s.adapted.length), [7 * layers, 4 * layers, 1]) // biome-ignore format: one line
  assert.deepEqual(modelSizes(raw, 'all-linear').adapted, all!.adapted)
  const [isQwen2, qAndV] = [all!.llm.architectures[0] === 'Qwen2ForCausalLM', modelSizes(raw, '.*\\.[qv]_proj')]
  assert.deepEqual([all!, attention!, one!, qAndV].map((s) => s.ownLayers), [isQwen2, isQwen2, false, false]) // biome-ignore format: one line
})
