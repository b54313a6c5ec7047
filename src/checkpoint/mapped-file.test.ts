// Weights that stay mapped: the file is cut under the process that reads them.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { test } from 'node:test'
import { scratch } from '../../tests/support/checkpoint.ts'

const here = (path: string) => JSON.stringify(new URL(path, import.meta.url).href)
const script = `
  import { truncateSync } from 'node:fs'
  import { writeSafetensors } from ${here('./safetensors.ts')}
  import { MappedFile } from ${here('../tensor/index.ts')}
  const path = process.env.TARGET
  const shape = [1 << 20]
  writeSafetensors(path, [{ name: 'a', dtype: 'F32', shape, data: new Uint8Array(4 << 20) }])
  const weights = new MappedFile(path).tensor(4096, [900_000], 'float32')
  truncateSync(path, 4096)
  console.log(weights.sum().item())`

test('a file that is cut while its weights are in use ends the process with its name, not with a signal', (t) => {
  const path = join(scratch(t), 'model.safetensors')
  const args = ['--import', 'tsx', '--input-type=module', '-e', script]
  const ended = spawnSync(process.execPath, args, { encoding: 'utf8', env: { ...process.env, TARGET: path } })
  assert.deepEqual([ended.status, ended.signal, ended.stdout], [74, null, ''], ended.stderr)
  assert.match(ended.stderr, /error: \S+model\.safetensors: expected the file that was opened, got one that was cut/)
})
