// Each sample gets its own reply and its own score: asked one by one, the EMA copy says the same.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { maskArea } from '../../src/mask/index.ts'
import type { Sa2VA } from '../../src/models/index.ts'
import { type CycleReply, describeAll, recordContext, segmentAll } from '../../src/tasks/index.ts'
import { tensor, tidy } from '../../src/tensor/index.ts'
import { hostOf, makeToy, openRun, samplesIn, scratch, spread, toyRun } from '../support/runs.ts'

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

test('an empty drawing is not a mask for the rewards', () => {
  const group = groups.find((g) => g.task.name === 'loop2')!
  const [first, ...others] = samplesIn(group)
  const none = { ...first!.mask!, counts: Uint32Array.of(first!.mask!.height * first!.mask!.width) }
  const replies = o.encoder.inWork(o.items, () =>
    o.learner.asEma(() => group.task.answer([group.item], [[{ ...first!, mask: none }, ...others]])),
  )
  const { answer } = replies[0]![0] as CycleReply
  assert.deepEqual([answer.mask, answer.captionPrime], [null, null])
})

test('every score belongs to its own sample', () => {
  for (const group of groups)
    group.scores.forEach((score, k) => {
      const { answer } = group.replies[k] as CycleReply
      assert.equal(answer.id, `${group.item.id}#${k}`)
      assert.equal(score.total, spread(answer, k, group.task.name))
    })
})

test('a reward sees the record with its columns and category, and how sure SAM2 is of the mask', () => {
  const sure = new Set<number>()
  for (const group of groups) {
    const { example } = o.items.find((i) => i === group.item)!
    const { category: _, ...plain } = recordContext({ id: '', example, features: {} })
    assert.deepEqual(plain, { columns: example.meta, image: example.image })
    group.replies.forEach((reply, k) => {
      const { answer, mask } = reply as CycleReply
      assert.deepEqual(answer.record, recordContext({ id: '', example, features: {} }))
      assert.equal(answer.maskConfidence === null, mask === null, `${answer.id} has a confidence when it has a mask`)
      if (answer.maskConfidence) sure.add(answer.maskConfidence.iou)
      const drawn = samplesIn(group)[k]!.confidence
      if (group.task.name === 'loop2') assert.deepEqual(answer.maskConfidence, drawn ?? null)
    })
  }
  assert.ok(sure.size > 3, `${sure.size} different confidences`)
  const example = { ...o.items[0]!.example, category: ['star'] }
  assert.deepEqual(recordContext({ id: '', example, features: {} }).category, ['star'])
})

test('the confidence of a mask is that of the chosen output: predicted overlap, probability of an object', () => {
  const { family } = o.cycle
  const { features } = o.items[0]!
  tidy(() => {
    const values = Float32Array.from({ length: 2 * 16 }, (_, i) => Math.sin(1 + i))
    const prompts = tensor(values, [2, 16])
    const { choice, confidence } = family.drawMasks(features, prompts, [2, 1])
    assert.deepEqual(choice, [2, 1])
    const sam = (family.module as Sa2VA).sam
    const decoded = sam.decode((features as { sam: never }).sam, { language: prompts.unsqueeze(1) })
    choice.forEach((c, row) => {
      const [iou, object] = confidence.select(0, row).numbers()
      assert.equal(iou, decoded.ious.numbers()[row * 3 + c])
      assert.ok(Math.abs(object! - 1 / (1 + Math.exp(-decoded.objScore.numbers()[row]!))) < 1e-6, `${object}`)
    })
  })
})

test("pictures are sent when a reward of the user's own scores, and only then", async () => {
  const sent: boolean[] = []
  const host = hostOf((answer) => {
    sent.push(answer.record?.image !== undefined)
    assert.ok(answer.record?.columns, 'columns are always there')
    return 0
  })
  const none = join(folder, 'none')
  for (const modules of [[], [{ path: 'mine.mjs', weight: 1 }]]) {
    const own = await openRun(toyRun(toy, none, { rewards: { modules }, rl: { maxCompletionLength: 4 } }), 1, host)
    await own.sample()
    own.dispose()
    assert.deepEqual([...new Set(sent.splice(0))], [modules.length > 0])
  }
})

test('samples differ, in a group and from step to step, and every setting of the sampler reaches it', async () => {
  const texts = (all: typeof groups) =>
    all.filter((g) => g.task.name === 'loop1').map((g) => g.samples.map((s) => s.text))
  const first = texts(groups)
  for (const said of first) assert.ok(new Set(said).size > 1, said.join(' | '))
  assert.notDeepEqual(texts(await o.sample(1)), first, 'another step draws others')
  assert.deepEqual(texts(await o.sample(0)), first)
  for (const narrow of [{ topK: 1 }, { topP: 1e-6 }, { minP: 1 }, { temperature: 1e-3 }]) {
    const rl = { numGenerations: 3, maxCompletionLength: 6, ...narrow }
    const own = await openRun(toyRun(toy, join(folder, 'none'), { rl }), 1)
    for (const said of texts(await own.sample())) assert.equal(new Set(said).size, 1, `${Object.keys(narrow)}: ${said}`)
    own.dispose()
  }
})
