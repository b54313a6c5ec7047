// A group of one process, whose collectives really run: what a long run would pile up shows after 10,000 steps of almost nothing.
import assert from 'node:assert/strict'
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { joinWorld, readRank } from '../../src/distributed/index.ts'
import { keep, memory, type Tensor, tensor, tidy } from '../../src/tensor/index.ts'
import { scratch } from '../support/runs.ts'

const folder = scratch('long')
after(() => rmSync(folder, { recursive: true, force: true }))

const steps = 10_000
/** Steps that are followed by a look at what the process holds. */
const looks = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map((part) => (part * steps) / 10)
/** A leak grows the process between every two looks; the heap grows once in a while, by tens of megabytes. */
const leak = 4 * 2 ** 20

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

/** The runner keeps a note of every promise until it is collected, and nothing asks for that here. */
function held() {
  collectGarbage()
  const count = (folder: string) => readdirSync(`/proc/self/${folder}`).length
  return { ...memory(), files: count('fd'), threads: count('task'), resident: process.memoryUsage().rss }
}

function giveGradients(parameters: ReadonlyMap<string, Tensor>, step: number): void {
  tidy(() => {
    for (const [name, p] of parameters)
      if (name === 'p0' || step % 2 === 0) p.setGrad(tensor(new Float32Array(p.numel).fill(step)))
  })
}

test('10,000 steps of collectives leave tensors, bytes, files and threads as they were, and memory flat', async () => {
  const world = await joinWorld({ ...readRank({}), meeting: { kind: 'file', path: join(folder, 'store') } })
  const parameters = new Map<string, Tensor>(
    [3, 5].map((n, i) => [`p${i}`, keep(tensor(new Float32Array(n)).requiresGrad_())]),
  )
  const seen: ReturnType<typeof held>[] = []
  for (let step = 1; step <= steps; step++) {
    giveGradients(parameters, step)
    await world.sumGradients(parameters)
    await world.agree([false])
    for (const p of parameters.values()) p.setGrad(null)
    if (looks.includes(step)) seen.push(held())
  }
  for (const p of parameters.values()) p.dispose()
  await world.close()
  const [first, last] = [seen[0]!, seen.at(-1)!]
  const growth = seen.slice(1).map((look, i) => look.resident - seen[i]!.resident)
  const text = JSON.stringify(seen)
  assert.deepEqual([last.tensors, last.bytes, last.scopes], [first.tensors, first.bytes, first.scopes], text)
  for (const what of ['slots', 'files', 'threads'] as const) assert.ok(last[what] <= first[what] + 8, text)
  assert.ok(growth.sort((a, b) => a - b)[Math.floor(growth.length / 2)]! < leak, text)
})
