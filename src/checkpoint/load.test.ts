import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { refuses, scratch } from '../../tests/support/checkpoint.ts'
import { Linear, Module } from '../nn/index.ts'
import { expectNoLeak, memory, tensor, tidy } from '../tensor/index.ts'
import { loadWeights, readTensors, tensorSource } from './load.ts'
import { writeSafetensors } from './safetensors.ts'
import { openWeights } from './weights.ts'

class Net extends Module {
  readonly first = new Linear(3, 2)
  readonly second = new Linear(2, 1, { bias: false })
}

const floats = (values: number[]) => new Uint8Array(Float32Array.from(values).buffer)
const source = (name: string, shape: number[], values: number[]) => ({
  name,
  dtype: 'F32' as const,
  shape,
  data: floats(values),
})
const net = [
  source('first.weight', [2, 3], [1, 2, 3, 4, 5, 6]),
  source('first.bias', [2], [7, 8]),
  source('second.weight', [1, 2], [9, 10]),
]

function free(model: Module): void {
  for (const t of model.parameters().values()) t.dispose()
}

test('every weight of a model is filled by name, with progress', (t) => {
  const path = join(scratch(t), 'a.safetensors')
  writeSafetensors(path, net)
  const model = new Net()
  const seen: string[] = []
  loadWeights(model, openWeights(path), { onProgress: (done, total) => seen.push(`${done}/${total}`) })
  assert.deepEqual(model.first.weight.numbers(), [1, 2, 3, 4, 5, 6])
  assert.deepEqual(model.second.weight.shape, [1, 2])
  assert.deepEqual(seen, ['1/3', '2/3', '3/3'])
  free(model)
})

test('names that may be left or missing are, others come in one error', (t) => {
  const path = join(scratch(t), 'a.safetensors')
  writeSafetensors(path, [...net.slice(0, 2), source('spare.weight', [1], [0])])
  const folder = openWeights(path)
  const model = new Net()
  refuses(
    () => loadWeights(model, folder),
    /the model's 3 tensors, got 1 missing: second\.weight; 1 unexpected: spare\.weight/,
  )
  loadWeights(model, folder, { unused: [/^spare\./], optional: [/^second\./] })
  assert.equal(model.second.weight.device, 'meta')
  free(model)
})

test('floating weights are cast when asked', (t) => {
  const path = join(scratch(t), 'a.safetensors')
  writeSafetensors(path, net)
  const model = new Net()
  loadWeights(model, openWeights(path), { dtype: 'bfloat16' })
  assert.equal(model.first.weight.dtype, 'bfloat16')
  assert.deepEqual(model.first.weight.numbers(), [1, 2, 3, 4, 5, 6])
  free(model)
})

test('weights of 16 bit are checked and cast', (t) => {
  for (const [dtype, one, infinity] of [
    ['F16', 0x3c00, 0x7c00],
    ['BF16', 0x3f80, 0x7f80],
  ] as const) {
    const path = join(scratch(t), `${dtype}.safetensors`)
    const write = (value: number) =>
      writeSafetensors(
        path,
        net.map(({ name, shape }) => {
          const values = new Uint16Array(shape.reduce((a, b) => a * b, 1)).fill(value)
          return { name, dtype, shape, data: new Uint8Array(values.buffer) }
        }),
      )
    const model = new Net()
    write(one)
    loadWeights(model, openWeights(path), { dtype: 'float32' })
    assert.deepEqual(model.first.weight.numbers(), [1, 1, 1, 1, 1, 1])
    free(model)
    write(infinity)
    refuses(() => loadWeights(new Net(), openWeights(path)), /expected finite weights, got an infinity/)
  }
})

test('a mapped weight needs no extra memory and may be written without touching the file', (t) => {
  const path = join(scratch(t), 'a.safetensors')
  writeSafetensors(path, [source('first.weight', [2, 3], [1, 2, 3, 4, 5, 6]), ...net.slice(1)])
  const model = new Net()
  const before = memory().bytes
  loadWeights(model, openWeights(path), { checkFinite: false })
  assert.ok(memory().bytes - before < 64)
  tidy(() => void model.first.weight.fill_(5) as never)
  assert.deepEqual(
    tidy(() => readTensors(openWeights(path)).get('first.weight')!.numbers()),
    [1, 2, 3, 4, 5, 6],
  )
  free(model)
})

test('tensors of every dtype go out and come back', (t) => {
  const path = join(scratch(t), 'a.safetensors')
  expectNoLeak(() =>
    tidy(() => {
      const made = [
        'float32',
        'float64',
        'float16',
        'bfloat16',
        'int64',
        'int32',
        'int16',
        'int8',
        'uint8',
        'bool',
      ] as const
      const all = made.map((dtype): [string, ReturnType<typeof tensor>] => [dtype, tensor([[1, 0, 1]], { dtype })])
      writeSafetensors(
        path,
        all.map(([name, x]) => tensorSource(name, x)),
      )
      const back = readTensors(openWeights(path))
      for (const [name, x] of all) {
        assert.equal(back.get(name)!.dtype, name)
        assert.deepEqual(back.get(name)!.array(), x.array())
      }
    }),
  )
})

test('a dtype that no tensor has is refused by name', (t) => {
  const path = join(scratch(t), 'a.safetensors')
  writeSafetensors(path, [{ name: 'x', dtype: 'F8_E4M3', shape: [2], data: new Uint8Array(2) }])
  refuses(() => readTensors(openWeights(path)), /a\.safetensors: x: expected a dtype of .*, got F8_E4M3/)
})
