import assert from 'node:assert/strict'
import { test } from 'node:test'
import { chooseBackend, gpuName } from './backend.ts'

const both = ['gloo', 'nccl']
const own = ['GPU 0 of a', 'GPU 1 of a', 'GPU 0 of b']
const shared = ['GPU 0 of a', 'GPU 0 of b', 'GPU 0 of a']

test('auto takes NCCL if every process has a GPU to itself and the build has NCCL, else Gloo', () => {
  assert.equal(chooseBackend('auto', own, both), 'nccl')
  assert.equal(chooseBackend('auto', shared, both), 'gloo')
  assert.equal(chooseBackend('auto', own, ['gloo']), 'gloo')
})

test('a named backend is taken or refused with the GPU that processes share, never replaced', () => {
  assert.equal(chooseBackend('gloo', own, both), 'gloo')
  assert.equal(chooseBackend('nccl', own, both), 'nccl')
  assert.throws(
    () => chooseBackend('nccl', shared, both),
    /distributed\.backend: .*several processes use GPU 0 of a, got nccl/,
  )
  assert.throws(() => chooseBackend('nccl', own, ['gloo']), /this build has no NCCL, got nccl/)
})

test('a GPU has the name of its host and of its number among all GPUs, not among the visible ones', () => {
  assert.equal(gpuName('cuda:1', {}, 'a'), 'GPU 1 of a')
  assert.equal(gpuName('cuda:0', { CUDA_VISIBLE_DEVICES: '6' }, 'a'), 'GPU 6 of a')
  assert.equal(gpuName('cuda:1', { CUDA_VISIBLE_DEVICES: '3, 7' }, 'a'), 'GPU 7 of a')
})
