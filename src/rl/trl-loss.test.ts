// grpoLoss against TRL's own loss code, run by tests/parity/trl_loss.py: entropy bonus, corrected KL, normaliser of a generation batch.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import { backward, type Tensor, tensor, tidy } from '../tensor/index.ts'
import { type GrpoInput, grpoLoss, resolveGrpo } from './index.ts'

type Rows = number[][]

interface Case {
  name: string
  config: Record<string, number | string | boolean>
  input: Record<'logps' | 'ref_logps' | 'mask' | 'entropies', Rows> & {
    old_logps: Rows | null
    advantages: number[]
    generation_tokens: number
  }
  expected: { loss: number; grad_logps: Rows; grad_entropies: Rows; metrics: Record<string, number | null> }
}

const { cases } = JSON.parse(readFileSync(new URL('../../tests/fixtures/trl-loss.json', import.meta.url), 'utf8')) as {
  cases: Case[]
}

const camel = (name: string) => name.replace(/_([a-z])/g, (_, c: string) => c.toUpperCase())
const load = (rows: Rows) => tensor(Float64Array.from(rows.flat()), [rows.length, rows[0]!.length])

/** TRL counts the tokens of a generation batch and rescales them to one accumulation window. */
function configOf({ config, input }: Case) {
  const own = Object.fromEntries(Object.entries(config).map(([key, value]) => [camel(key), value])) as GrpoInput
  const correction = config.beta ? { useBiasCorrectionKl: true } : {}
  const rl = resolveGrpo({ lossType: 'dapo', beta: 0, maxCompletionLength: 512, ...correction, ...own })
  const { gradientAccumulationSteps: accumulation, stepsPerGeneration } = rl
  return { ...rl, numItemsInBatch: (input.generation_tokens * accumulation) / (stepsPerGeneration ?? accumulation) }
}

function run(one: Case) {
  const { input } = one
  const [logps, entropies] = [load(input.logps).requiresGrad_(), load(input.entropies).requiresGrad_()]
  const result = grpoLoss(
    {
      logps,
      entropies,
      oldLogps: input.old_logps ? load(input.old_logps) : null,
      refLogps: load(input.ref_logps),
      mask: load(input.mask),
      advantages: tensor(Float64Array.from(input.advantages)),
    },
    configOf(one),
  )
  backward(result.loss)
  const gradient = (t: Tensor) => t.grad()?.numbers() ?? new Array<number>(t.numel).fill(0)
  return {
    loss: [result.loss.item()],
    grad_logps: gradient(logps),
    grad_entropies: gradient(entropies),
    metrics: result.measure()(),
  }
}

function near(what: string, got: readonly number[], want: readonly number[]): void {
  want.forEach((v, i) => {
    assert.ok(Math.abs(got[i]! - v) <= 1e-12 * Math.max(1, Math.abs(v)), `${what} ${i}: ${got[i]}, TRL ${v}`)
  })
}

for (const one of cases) {
  test(`${one.name}: loss, gradients and metrics are TRL's`, () =>
    tidy(() => {
      const [got, want] = [run(one), one.expected]
      near('loss', got.loss, [want.loss])
      near('grad_logps', got.grad_logps, want.grad_logps.flat())
      near('grad_entropies', got.grad_entropies, want.grad_entropies.flat())
      const names = Object.keys(want.metrics).filter((name) => want.metrics[name] !== null && name !== 'policy_loss')
      assert.ok(names.includes('entropy'))
      for (const name of names) near(name, [got.metrics[name]!], [want.metrics[name]!])
    }))
}

test('every loss type that both have is here with a bonus, a filter, another generation size and both KL terms', () => {
  for (const type of ['dapo', 'cispo', 'vespo', 'grpo', 'bnpo', 'dr_grpo', 'sapo'])
    assert.equal(cases.filter((c) => c.config.loss_type === type).length >= 6, true, type)
})
