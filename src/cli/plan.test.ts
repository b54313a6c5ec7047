import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { modelSizes, type ReleasedName, releasedConfig } from '../models/index.ts'
import { fits, planMemory, planScaling, resolveRun } from '../run/index.ts'
import { planTable } from './plan.ts'

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
const page = read('docs/memory.md')
const results = read('dev/results/memory.md')

test('the table of dev/results/memory.md is the output of the planner', async () => {
  const shown = results.split('<!-- plan -->\n')[1]?.split('<!-- /plan -->')[0]
  assert.equal(shown, await planTable(), 'put the output of `roundtrip plan --table` between the marks')
})

test('every row of the short table of docs/memory.md is a row of the planner', async () => {
  const shown = page.split('<!-- plan -->\n')[1]!.split('<!-- /plan -->')[0]!.trim().split('\n')
  const rows = (await planTable()).trim().split('\n')
  assert.ok(shown.length > 6, `${shown.length} rows`)
  assert.deepEqual(
    shown.filter((line) => !rows.includes(line)),
    [],
  )
})

const gib = 2 ** 30

const forms = ['int8', 'nf4'] as const

for (const form of forms)
  test(`so are the rows of dev/results/memory.md about matrices in ${form}`, async () => {
    const shown = results.split(`<!-- plan ${form} -->\n`)[1]!.split(`<!-- /plan ${form} -->`)[0]!.trim().split('\n')
    const said = await planTable({ frozenWeights: form, lora: { rank: 32, alpha: 64, targets: null, dropout: 0 } })
    assert.ok(shown.length > 6, `${shown.length} rows`)
    for (const line of shown) assert.ok(said.includes(`${line}\n`), `no row of \`roundtrip plan --table\`: ${line}`)
  })

test('8 billion values fit 24 GB in 8 bit and 16 GB in 4 bit, 14 billion fit 24 GB in 4 bit', () => {
  const cards = [15.6, 23.5].map((size) => ({ bytes: size * gib, kernels: false }))
  for (const [name, rank, limits] of [
    ['8b', 128, ['- -', '- 24', '- 24']],
    ['internvl3-8b', 128, ['- -', '- 24', '- 24']],
    ['8b', 32, ['- 24', '- 24', '16 24']],
    ['internvl3-8b', 32, ['- 24', '- 24', '16 24']],
    ['qwen2_5-vl-7b', 32, ['- 24', '- 24', '16 24']],
    ['internvl3-14b', 32, ['- -', '- -', '- 24']],
  ] as const) {
    const sizes = modelSizes(releasedConfig(name))
    const rl = { numGenerations: 4, maxCompletionLength: 128 }
    const settings = { checkpointing: true, batchSize: 1, maxTiles: 1, rl, lora: { rank } }
    const plans = (['exact', ...forms] as const).map((frozenWeights) =>
      cards.map((card) => [planMemory(sizes, resolveRun({ ...settings, frozenWeights }), card), card] as const),
    )
    const fitting = plans.map((list) => list.map(([p, card], i) => (fits(p, card) ? [16, 24][i] : '-')).join(' '))
    assert.deepEqual(fitting, limits, `${name}, rank ${rank}`)
    const values = sizes.matrices.reduce((sum, [out, input]) => sum + out * input, 0)
    assert.ok(values > 6e9, `${name}: ${values} values in matrices`)
    const [exact, int8, nf4] = plans.map((list) => list[0]![0].frozen) as [number, number, number]
    assert.ok(Math.abs((exact - int8) / values - 1) < 1e-3, `${name}: a byte a value is saved`)
    assert.equal(exact - nf4, values * (2 - 34 / 64), `${name}: 34 bytes every 64 values`)
  }
})

const card = { bytes: 139.8 * gib, kernels: true }

function peak(name: ReleasedName, settings: object, on = card): number {
  return planMemory(modelSizes(releasedConfig(name)), resolveRun(settings), on).peak / gib
}

test('the plan is within a tenth of every measured peak of dev/results/memory.md, and hardly below it', () => {
  const rows = [
    ...results.matchAll(
      /^\| (\w+|internvl3-\d+b), batch (\d+), K (\d+), (\d+) tiles, (.*) \| ([\d.]+) \| ([\d.]+) \|$/gm,
    ),
  ]
  assert.ok(rows.length >= 8, `${rows.length} measured peaks`)
  for (const [line, name, batch, K, tiles, rest, measured, planned] of rows) {
    const settings = {
      batchSize: Number(batch),
      maxTiles: Number(tiles),
      checkpointing: rest!.includes('checkpointing true'),
      frozenWeights: forms.find((form) => rest!.includes(form)) ?? 'exact',
      lora: { rank: rest!.includes('rank 32') ? 32 : 128 },
      sampling: { weights: rest!.includes('merged') ? ('merged' as const) : ('exact' as const) },
      rl: { numGenerations: Number(K), maxCompletionLength: 128 },
      loop2: { maskLoss: rest!.includes('maskLoss 0.1') ? 0.1 : 0 },
    }
    const found = peak(name as ReleasedName, settings, { ...card, kernels: !rest!.includes('kernels off') })
    assert.ok(Math.abs(found - Number(planned)) < 0.06, `${line}: the planner says ${found}`)
    const share = found / Number(measured)
    assert.ok(share > 0.95 && share < 1.1, `${line}: the planner says ${found}`)
  }
})

test('more records, samples, tiles, tokens, values and layers that are kept never need less', () => {
  const plain = { batchSize: 2, maxTiles: 6, checkpointing: true, rl: { numGenerations: 4, maxCompletionLength: 128 } }
  const more: object[] = [
    { ...plain, batchSize: 4 },
    { ...plain, rl: { ...plain.rl, numGenerations: 8 } },
    { ...plain, maxTiles: 12 },
    { ...plain, rl: { ...plain.rl, maxCompletionLength: 512 } },
    { ...plain, checkpointing: false },
    { ...plain, loop2: { maskLoss: 0.1 } },
    { ...plain, lora: { rank: 256 } },
  ]
  for (const name of ['1b', '4b', 'qwen3-vl-4b'] as const)
    for (const settings of more)
      assert.ok(peak(name, settings) >= peak(name, plain), `${name} ${JSON.stringify(settings)}`)
  assert.ok(peak('4b', plain) > peak('1b', plain), 'a larger model')
})

test('a plan fits with room for the driver and what the allocator cannot join', () => {
  assert.equal(fits({ peak: 75 * gib }, { bytes: 79.1 * gib, kernels: true }), false)
  assert.equal(fits({ peak: 74 * gib }, { bytes: 79.1 * gib, kernels: true }), true)
})

test('a plain Qwen-VL is planned for one question a record, without masks', () => {
  for (const set of ['qwen2_5_vl-tiny', 'qwen3_vl-tiny']) {
    const sizes = modelSizes(JSON.parse(read(`tests/fixtures/golden/${set}/config.json`)))
    assert.deepEqual([sizes.samScale, sizes.adapted.length], [0, 4 * sizes.llm.num_hidden_layers])
    const levels = set === 'qwen3_vl-tiny' ? 4 : 1
    assert.equal(sizes.featureValues(1), sizes.imageTokens(1) * levels * sizes.llm.hidden_size)
    const plan = (numGenerations: number) =>
      planMemory(sizes, resolveRun({ rl: { numGenerations, maxCompletionLength: 8 } }), { ...card, kernels: false })
    const perToken = 4 * sizes.llm.num_hidden_layers * sizes.llm.num_key_value_heads * sizes.llm.head_dim
    assert.ok(plan(8).sampling >= 8 * sizes.imageTokens(1) * perToken)
    assert.ok(plan(8).sampling < 2.5 * plan(4).sampling)
  }
})

test('with splitMoments each of W processes plans 1/W of moments, EMA copy and start values, which are whole while they are used', () => {
  const sizes = modelSizes(releasedConfig('4b'))
  const settings = resolveRun({ splitMoments: true, checkpointing: true, batchSize: 1 })
  const plan = (processes: number, splitMoments = true) =>
    planMemory(sizes, { ...settings, splitMoments }, card, processes)
  assert.deepEqual(plan(1), plan(4, false))
  const adapters = sizes.adapted.reduce((n, [out, input]) => n + settings.lora.rank * (out + input), 0)
  const [whole, four] = [plan(1), plan(4)]
  assert.ok(Math.abs(whole.trained - four.trained - 0.75 * (12 * (sizes.trained + adapters) + 4 * sizes.trained)) < 1)
  assert.ok(Math.abs(four.sampling - whole.sampling - 0.75 * 4 * (sizes.trained + adapters)) < 1)
  assert.ok(Math.abs(four.learning - whole.learning - 0.75 * 4 * sizes.trained) < 1)
  assert.ok(four.peak < plan(2).peak && plan(2).peak < whole.peak)
})

test('gradients of an earlier piece are planned while the next one is learned from', () => {
  const sizes = modelSizes(releasedConfig('4b'))
  const rl = { numGenerations: 4, maxCompletionLength: 64 }
  const settings = {
    batchSize: 1,
    maxTiles: 1,
    frozenWeights: 'int8',
    checkpointing: true,
    lora: { rank: 128 },
    sampling: { weights: 'exact' },
  } as const
  const plan = (gradientAccumulationSteps: number, splitMoments: boolean) =>
    planMemory(sizes, resolveRun({ ...settings, splitMoments, rl: { ...rl, gradientAccumulationSteps } }), card, 2)
  const adapters = sizes.adapted.reduce((n, [out, input]) => n + 128 * (out + input), 0)
  assert.equal(Math.round(plan(4, false).learning - plan(1, false).learning), 4 * (sizes.trained + adapters))
  // measured with 2 processes on one H200, 4 pieces a step
  assert.ok(Math.abs(plan(4, false).peak / (12.87 * gib) - 1) < 0.05)
  assert.ok(Math.abs(plan(4, true).peak / (11.42 * gib) - 1) < 0.05)
})

test('the scaling model: a ring sends 2 (W - 1) / W gradients; measured seconds and bandwidth replace the assumed ones', () => {
  const sizes = modelSizes(releasedConfig('4b'))
  const settings = resolveRun({ batchSize: 4, rl: { numGenerations: 4 } })
  const adapters = sizes.adapted.reduce((n, [out, input]) => n + settings.lora.rank * (out + input), 0)
  const rows = planScaling(sizes, settings)
  assert.deepEqual(
    rows.map((row) => row.processes),
    [2, 4, 8, 16, 32, 64],
  )
  assert.equal(rows[0]!.bytes, 4 * (sizes.trained + adapters))
  assert.equal(rows[1]!.bytes, 1.5 * rows[0]!.bytes)
  for (const [i, row] of rows.entries())
    assert.ok(row.efficiency < (rows[i - 1]?.efficiency ?? 1) && row.efficiency > 0.5)
  const measured = planScaling(sizes, settings, 10, 1e9)[0]!
  assert.equal(measured.sending, measured.bytes / 1e9)
  assert.ok(Math.abs(measured.efficiency - 10 / (10 + measured.sending + measured.waiting)) < 1e-12)
  assert.ok(planScaling(sizes, { ...settings, splitMoments: true })[0]!.bytes > 1.9 * rows[0]!.bytes)
})
