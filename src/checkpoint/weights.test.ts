import assert from 'node:assert/strict'
import { copyFileSync, readdirSync, readFileSync, renameSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fixture, golden, refuses, scratch } from '../../tests/support/checkpoint.ts'
import { missingAndExtra } from './names.ts'
import { readAll, type TensorSource, writeSafetensors } from './safetensors.ts'
import { mergedFolder } from './unmerged.ts'
import { openWeights } from './weights.ts'
import { writeWeights } from './weights-write.ts'

function tensor(name: string, bytes: number, fill = bytes % 251): TensorSource {
  return { name, dtype: 'U8', shape: [bytes], data: new Uint8Array(bytes).fill(fill) }
}

const indexName = 'model.safetensors.index.json'
const index = (dir: string) => JSON.parse(readFileSync(join(dir, indexName), 'utf8'))
function changeIndex(dir: string, name: string, shard: unknown): void {
  const json = index(dir)
  if (shard === undefined) delete json.weight_map[name]
  else json.weight_map[name] = shard
  writeFileSync(join(dir, indexName), JSON.stringify(json))
}

/** Three shards: [a, b], [big], [c]. */
function sharded(dir: string): string {
  writeWeights(dir, [tensor('a', 40), tensor('b', 50), tensor('big', 300), tensor('c', 60)], { maxShardBytes: 100 })
  return dir
}

test('the golden Sa2VA folder opens with its 416 tensors, each readable at its offset', () => {
  const folder = openWeights(golden('sa2va-tiny'))
  assert.equal(folder.names.length, 416)
  const all = readAll(golden('sa2va-tiny/model.safetensors'))
  const bytes = readFileSync(golden('sa2va-tiny/model.safetensors'))
  for (const name of folder.names) {
    const { offset, byteLength, dtype, shape, mappable } = folder.entry(name)
    assert.ok(mappable)
    assert.deepEqual([dtype, shape], [all.get(name)!.dtype, all.get(name)!.shape])
    assert.ok(bytes.subarray(offset, offset + byteLength).equals(all.get(name)!.data))
  }
  refuses(() => folder.entry('nope'), /nope: expected a tensor of that name, got none/)
})

test('shards follow the Hugging Face rule and read back the same', (t) => {
  const dir = sharded(scratch(t))
  const shard = (i: number) => `model-0000${i}-of-00003.safetensors`
  assert.deepEqual(readdirSync(dir).sort(), [shard(1), shard(2), shard(3), indexName].sort())
  assert.deepEqual(index(dir), {
    metadata: { total_size: 450 },
    weight_map: { a: shard(2), b: shard(2), big: shard(1), c: shard(3) },
  })
  const folder = openWeights(dir)
  assert.deepEqual([...folder.names].sort(), ['a', 'b', 'big', 'c'])
  assert.equal(folder.files.length, 3)
  assert.ok(folder.read('big').every((v) => v === 300 % 251))
  assert.deepEqual(folder.shapes().get('c'), [60])
  assert.equal(openWeights(join(dir, indexName)).names.length, 4)
  refuses(() => sharded(dir), /a folder without model weights, got model/)
})

test('weights below the limit go to one file without an index', (t) => {
  const dir = scratch(t)
  assert.deepEqual(writeWeights(dir, [tensor('a', 40), tensor('b', 60)], { maxShardBytes: 100 }), ['model.safetensors'])
  assert.equal(openWeights(dir).names.length, 2)
})

test('an index that names a missing shard, a missing tensor or a path is refused', (t) => {
  const dir = sharded(scratch(t))
  const c = index(dir).weight_map.c
  for (const shard of ['../x.safetensors', '/etc/passwd', 'a/b.safetensors', '..', '', 'a\\b', 'x\0y', 3, null]) {
    changeIndex(dir, 'c', shard)
    refuses(() => openWeights(dir), /weight_map\.c: expected the name of a file beside the index/)
  }
  changeIndex(dir, 'c', 'model-00009-of-00009.safetensors')
  refuses(
    () => openWeights(dir),
    /model-00009-of-00009\.safetensors: expected the shard beside the index, got no such file/,
  )
  changeIndex(dir, 'c', 'config.json')
  writeFileSync(join(dir, 'config.json'), '{}')
  refuses(() => openWeights(dir), /a file ending in/)
  changeIndex(dir, 'c', c)
  changeIndex(dir, 'd', c)
  refuses(() => openWeights(dir), /d: expected a tensor in model-00003-of-00003\.safetensors, got none of that name/)
  writeFileSync(join(dir, indexName), '{"weight_map": []}')
  refuses(() => openWeights(dir), /weight_map: expected an object, got a list/)
  writeFileSync(join(dir, indexName), '{')
  refuses(() => openWeights(dir), /a file of JSON/)
})

test('a cut shard is refused; a tensor missing from the index is kept and logged; one in two shards is refused', (t) => {
  const dir = sharded(scratch(t))
  const c = index(dir).weight_map.c
  changeIndex(dir, 'b', undefined)
  const folder = openWeights(dir)
  assert.ok(folder.names.includes('b'))
  assert.equal(folder.read('b').length, 50)
  writeSafetensors(join(dir, c), [tensor('c', 60), tensor('a', 1)])
  refuses(() => openWeights(dir), /a: expected a tensor in one shard, got a second in model-00003/)
  truncateSync(join(dir, c), 100)
  refuses(() => openWeights(dir), /model-00003-of-00003\.safetensors: .*expected/)
})

test('pytorch_model.bin and its index are read like safetensors, which come first', (t) => {
  const dir = scratch(t)
  refuses(() => openWeights(dir), /expected one of model\.safetensors, .*got none/)
  refuses(() => openWeights(join(dir, 'no')), /nothing there/)
  copyFileSync(fixture('state.bin'), join(dir, 'pytorch_model.bin'))
  assert.equal(openWeights(dir).read('transposed').length, 96)
  renameSync(join(dir, 'pytorch_model.bin'), join(dir, 'pytorch_model-00001-of-00001.bin'))
  const names = openWeights(fixture('state.bin')).names
  const map = Object.fromEntries(names.map((name) => [name, 'pytorch_model-00001-of-00001.bin']))
  writeFileSync(join(dir, 'pytorch_model.bin.index.json'), JSON.stringify({ weight_map: map }))
  assert.deepEqual(openWeights(dir).names, names)
  writeSafetensors(join(dir, 'model.safetensors'), [tensor('a', 3)])
  const both = openWeights(dir)
  assert.deepEqual(both.names, ['a'])
})

test('all missing, unexpected and misshapen tensors are in one text, long lists shortened', () => {
  const shapes = (...names: string[]) => new Map(names.map((name) => [name, [2, 3]]))
  assert.equal(missingAndExtra(shapes('a', 'b'), shapes('b', 'a')), null)
  const have = new Map([...shapes('b', 'x'), ['c', [3, 2]]])
  const text = missingAndExtra(shapes('a', 'b', 'c'), have)
  assert.equal(text, '1 missing: a; 1 unexpected: x; 1 misshapen: c [3, 2] instead of [2, 3]')
  const many = shapes(...Array.from({ length: 1000 }, (_, i) => `t${i}`))
  assert.equal(missingAndExtra(many, new Map(), 2), '1000 missing: t0, t1 and 998 more')
})

test('an unmerged adapter is added to its bfloat16 weight in float32 and rounded once', (t) => {
  const path = join(scratch(t), 'model.safetensors')
  const float32 = (value: number) => new Uint8Array(Float32Array.of(value).buffer)
  const factor = (letter: string, value: number): TensorSource => {
    return { name: `mllm.layer.lora_${letter}.default.weight`, dtype: 'F32', shape: [1, 1], data: float32(value) }
  }
  const one = Uint8Array.of(0x80, 0x3f)
  const base: TensorSource = { name: 'mllm.layer.base_layer.weight', dtype: 'BF16', shape: [1, 1], data: one }
  // half of the step between neighbours of 1, and a little more that bfloat16 cannot hold
  writeSafetensors(path, [base, factor('A', 2 ** -8 + 2 ** -17), factor('B', 0.5)])
  const merged = mergedFolder(openWeights(path), (name) => name === 'layer.weight', 2)
  assert.deepEqual([...merged.read('layer.weight')], [0x81, 0x3f])
})
