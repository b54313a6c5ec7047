import assert from 'node:assert/strict'
import { test } from 'node:test'
import { placeNotices } from './device.ts'

test('a pod that sees several GPUs and starts one process gets a warning, once', () => {
  const pod = { KUBERNETES_SERVICE_HOST: '10.0.0.1', RANK: '0', WORLD_SIZE: '2', MASTER_ADDR: 'm' }
  assert.deepEqual(
    placeNotices(pod, 8).map(({ kind, text }) => [kind, text.includes('8 GPUs')]),
    [['settings', true]],
  )
  assert.deepEqual(placeNotices({ ...pod, LOCAL_RANK: '0' }, 8), [])
  assert.deepEqual(placeNotices({}, 8), [])
})
