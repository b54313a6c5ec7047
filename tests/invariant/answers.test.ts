// Each sample gets its own reply and its own score: asked one by one, the EMA copy says the same.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { maskArea } from '../../src/mask/index.ts'
import { type CycleReply, describeAll, segmentAll } from '../../src/tasks/index.ts'
import { makeToy, openRun, samplesIn, scratch, spread, toyRun } from '../support/runs.ts'

const folder = scratch('answers')
const toy = makeToy(join(folder, 'toy'))
const o = await openRun(toyRun(toy, join(folder, 'none'), { rl: { numGenerations: 3, maxCompletionLength: 10 } }), 3)
after(() => {
  o.dispose()
  rmSync(folder, { recursive: true, force: true })
})
const groups = await o.sample()
const features = (group: (typeof groups)[number]) => o.items.find((i) => i === group.item)!.features

test('the mask of a reply is what the EMA copy draws from that caption of that record', () => {
  const masks = new Set<string>()
  for (const group of groups.filter((g) => g.task.name === 'loop1')) {
    samplesIn(group).forEach((s, k) => {
      if (!s.caption) return
      const [found] = o.learner.asEma(() => segmentAll(o.cycle, [{ features: features(group), caption: s.caption! }]))
      assert.deepEqual((group.replies[k] as CycleReply).mask, found!.mask)
      masks.add(JSON.stringify([...(found!.mask?.counts ?? [])]))
    })
  }
  assert.ok(masks.size > 3, `${masks.size} different masks`)
})

test('the words of a reply are what the EMA copy says of that mask of that record', () => {
  let different = 0
  for (const group of groups.filter((g) => g.task.name === 'loop2')) {
    samplesIn(group).forEach((s, k) => {
      if (!s.mask || maskArea(s.mask) === 0) return
      const { example } = o.items.find((i) => i === group.item)!
      const ask = (mask: typeof s.mask) =>
        o.learner.asEma(() => describeAll(o.cycle, [{ features: features(group), mask: mask! }]))
      const [words] = ask(s.mask)
      assert.equal((group.replies[k] as CycleReply).text, words)
      if (ask(example.mask)[0] !== words) different++
    })
  }
  assert.ok(different > 0, 'some drawn mask is described otherwise than that of the record')
})

test('every score belongs to its own sample', () => {
  for (const group of groups)
    group.scores.forEach((score, k) => {
      const { answer } = group.replies[k] as CycleReply
      assert.equal(answer.id, `${group.item.id}#${k}`)
      assert.equal(score.total, spread(answer, k, group.task.name))
    })
})
