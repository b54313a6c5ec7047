// Runs where the engine sees a CUDA device; the runner reports these files as skipped elsewhere.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test from 'node:test'
import { joinWorld, readRank } from '../../src/distributed/index.ts'
import { keep, type Tensor, tensor, tidy } from '../../src/tensor/index.ts'
import { program, startProgram } from '../e2e/cli.ts'
import { assertSameInGroupOfOne } from '../support/group-of-one.ts'
import { makeToy } from '../support/runs.ts'

const device = 'cuda:0'

async function assertSendsCudaTensors(backend: 'gloo' | 'nccl'): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), `roundtrip-${backend}-`))
  const meeting = { kind: 'file', path: join(folder, 'store') } as const
  const world = await joinWorld({ ...readRank({}), meeting }, { backend })
  const values = Float32Array.from({ length: 1000 }, (_, i) => Math.sin(i))
  const parameter = keep(tensor(new Float32Array(1000), { device }).requiresGrad_())
  parameter.setGrad(tensor(values, { device }))
  const named = new Map<string, Tensor>([['a', parameter]])
  await world.sumGradients(named)
  assert.deepEqual(
    tidy(() => parameter.grad()!.array()),
    values,
  )
  const sent = new Map([['steps', keep(tensor([41], { dtype: 'int64', device }))]])
  await world.broadcast(sent)
  assert.deepEqual(sent.get('steps')!.numbers(), [41])
  assert.deepEqual(await world.sum([1, 2]), [1, 2])
  await world.close()
  rmSync(folder, { recursive: true, force: true })
}

for (const backend of ['nccl', 'gloo'] as const)
  test(`a group of one sums and sends CUDA tensors through ${backend} and leaves their bits`, () =>
    assertSendsCudaTensors(backend))

test('a group of one on the GPU runs the same step as without a group, and its collectives are in the phase table', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-nccl-'))
  const rl = { numGenerations: 2, maxCompletionLength: 5 }
  const settings = { batchSize: 1, device: 'cuda', dtype: 'float32' as const, rl }
  await assertSameInGroupOfOne(makeToy(join(folder, 'toy')), folder, settings)
  rmSync(folder, { recursive: true, force: true })
})

test('distributed.backend nccl is rejected by name if two processes share a GPU', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-shared-gpu-'))
  const words = `train --model ${makeToy(join(folder, 'toy'))} --output ${join(folder, 'run')} --device cuda --dataPath scenes:24`
  const more =
    '--lora.rank 8 --data.workers 0 --evalRecords 0 --batchSize 2 --maxSteps 1 --rl.maxCompletionLength 5 --nproc 2'
  const flags = `${words} ${more} --distributed.backend nccl`.split(' ')
  const { code, err } = await startProgram('env', 'CUDA_VISIBLE_DEVICES=0', process.execPath, program, ...flags).ended
  assert.notEqual(code, 0)
  assert.match(err, /distributed\.backend: expected auto or gloo: several processes use GPU 0/)
  rmSync(folder, { recursive: true, force: true })
})
