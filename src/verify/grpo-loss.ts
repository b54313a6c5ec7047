import { Mismatch } from '../core/index.ts'
import { GrpoConfig, grpoLoss, type LossConfig, type LossInput, type LossResult } from '../rl/index.ts'
import { backward, type DType, type Tensor } from '../tensor/index.ts'
import { type Comparison, flatten, type Json, type JsonObject, load, loadOr } from './compare.ts'

const trlDefaults = { lossType: 'dapo', beta: 0, maxCompletionLength: 512 } as const

/** snake_case keys of the references as camelCase. */
export function camelKeys(given: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const camel = (name: string) => name.replace(/_([a-z])/g, (_, c: string) => c.toUpperCase())
  return Object.fromEntries(Object.entries(given).map(([key, value]) => [camel(key), value]))
}

/** TRL's option names to ours; an option that ours does not have is an error. */
function lossConfigOf(given: JsonObject): LossConfig {
  const { numItemsInBatch, numProcesses, ...own } = camelKeys(given) as Partial<LossConfig>
  const parsed = GrpoConfig.safeParse({ ...trlDefaults, ...own })
  if (!parsed.success)
    throw new Mismatch({ where: 'golden config', expected: 'known options', got: parsed.error.message })
  return { ...parsed.data, numItemsInBatch, numProcesses }
}

function lossInputOf(input: JsonObject, dtype: DType): LossInput {
  const entropies = loadOr(input.entropies, dtype)
  return {
    logps: load(input.logps!, dtype).requiresGrad_(),
    oldLogps: loadOr(input.old_logps, dtype),
    refLogps: loadOr(input.ref_logps, dtype),
    mask: load(input.mask!, dtype),
    advantages: load(input.advantages!, dtype),
    entropies: entropies?.requiresGrad_() ?? null,
    isRatio: loadOr(input.is_ratio, dtype),
    samplingLogps: loadOr(input.sampling_logps, dtype),
  }
}

export function checkLoss(input: JsonObject, expected: JsonObject, dtype: DType, c: Comparison): void {
  const tensors = lossInputOf(input, dtype)
  const result = grpoLoss(tensors, lossConfigOf(input.config as JsonObject))
  backward(result.loss)
  const mask = flatten(input.mask!) as number[]
  c.number('loss', result.loss.item(), expected.loss)
  c.number('policy_loss', result.policyLoss.item(), expected.policy_loss)
  c.numbers('grad_logps', tensors.logps.grad()!.numbers(), expected.grad_logps!)
  checkParts(result, expected, mask, c)
  if (expected.grad_entropies !== undefined) checkEntropyGradient(tensors.entropies!, expected.grad_entropies, c)
  checkMetrics(result.measure()(), expected.metrics as JsonObject, c)
}

/** Values at masked positions are ours to choose (0 before exp), so only the others are compared. */
function checkParts(result: LossResult, expected: JsonObject, mask: readonly number[], c: Comparison): void {
  const parts: [string, Tensor | null][] = [
    ['per_token_loss', result.perTokenLoss],
    ['per_sequence_loss', result.perTokenLoss],
    ['ratio', result.ratio],
    ['kl_per_token', result.klPerToken],
    ['entropy_mask', result.entropyMask],
    ['off_policy_keep', result.keptRows],
    ['phi', result.phi],
    ['entropy_bonus', result.entropyBonus],
  ]
  for (const [name, value] of parts) {
    const want = expected[name]
    if (want === undefined || want === null) continue
    const got = value?.numbers()
    if (got) c.numbers(name, got, want, got.length === mask.length ? mask : undefined)
    else c.equal(name, null, want)
  }
}

function checkEntropyGradient(entropies: Tensor, want: Json, c: Comparison): void {
  const grad = entropies.grad()
  c.numbers('grad_entropies', grad ? grad.numbers() : entropies.numbers().map(() => 0), want)
}

export function checkMetrics(got: Record<string, number>, expected: JsonObject, c: Comparison): void {
  for (const [name, want] of Object.entries(expected)) c.number(name, got[name] ?? Number.POSITIVE_INFINITY, want)
}

export function checkAccumulation(input: JsonObject, expected: JsonObject, dtype: DType, c: Comparison): void {
  const config = lossConfigOf(input.config as JsonObject)
  const parts = input.micro_batches as readonly JsonObject[]
  const losses = parts.map((part, i) => {
    const tensors = lossInputOf(part, dtype)
    const { loss } = grpoLoss(tensors, config)
    backward(loss)
    const want = (expected.accumulated_grad_logps as readonly Json[])[i]!
    c.numbers(`accumulated_grad_logps ${i}`, tensors.logps.grad()!.numbers(), want)
    return loss.item()
  })
  const total = losses.reduce((a, b) => a + b, 0)
  const single = grpoLoss(lossInputOf(joined(parts), dtype), { ...config, gradientAccumulationSteps: 1 }).loss.item()
  c.numbers('micro_losses', losses, expected.micro_losses!)
  c.number('accumulated_loss', total, expected.accumulated_loss)
  c.number('single_batch_loss', single, expected.single_batch_loss)
  c.equal('equal_to_single_batch', Math.abs(total - single) < 1e-6, expected.equal_to_single_batch)
}

function joined(parts: readonly JsonObject[]): JsonObject {
  const keys = Object.keys(parts[0]!).filter((key) => parts[0]![key] !== null)
  return Object.fromEntries(keys.map((key) => [key, parts.flatMap((part) => part[key] as readonly Json[])]))
}
