// Recomputes a golden folder of one GRPO step with PEFT adapters: scores, advantages, loss, clipped gradients, AdamW.
// B rows, P prompt tokens, T completion tokens, V vocabulary.
import { join } from 'node:path'
import { loadAdapter } from '../checkpoint/index.ts'
import type { CheckRow } from '../core/index.ts'
import { type Decoder, loadLanguageModel } from '../llm/index.ts'
import { type AdapterState, tensorAt, tokenLogps, trainOnly } from '../nn/index.ts'
import { AdamW } from '../optim/index.ts'
import { groupAdvantages, grpoLoss, type LossResult, resolveGrpo } from '../rl/index.ts'
import { arange, backward, cat, noGrad, type Tensor, tensor, tidy } from '../tensor/index.ts'
import { compareNumbers, compareTensor, failedRow, type Limit } from './compare.ts'
import { device } from './device.ts'
import { type GoldenTensors, readGolden, withGolden } from './golden-tensors.ts'

/** golden.json: the settings of the step and its scalars. */
interface Golden {
  loss: number
  loss_type?: string
  grad_norm_before_clip?: number
  mean_kl?: number
  clip_ratio?: number
  beta: number
  epsilon: number
  lr: number
  weight_decay: number
  max_grad_norm: number
  /** Which standard deviation the advantages use: 'unbiased, eps 1e-4'. */
  std?: string
}

interface Case {
  golden: Golden
  want: GoldenTensors
  decoder: Decoder
  adapters: AdapterState
}

const scores: Limit = { rel: 1e-5, abs: 1e-4, words: '1e-4' }
const lossLimit: Limit = { abs: 1e-6, rel: 1e-6, words: '1e-6' }
/** Exact arithmetic is 6.6e-7 away from the stored float32 loss: exp(reference - policy) magnifies roundings of the scores. */
const wholeLoss: Limit = { abs: 1e-6, rel: 1e-5, words: '1e-5 relative' }
const scalar: Limit = { rel: 1e-4, abs: 1e-6, words: '1e-4 relative' }
const gradient: Limit = { rel: 1e-3, abs: 1e-6, words: '1e-3 of the largest magnitude' }

export function verifyLora(dir: string): CheckRow[] {
  const golden = readGolden<Golden>(dir)
  const decoder = loadLanguageModel(join(dir, 'config.json'), join(dir, 'base.safetensors'), { device: device() })
  const adapters = loadAdapter(decoder.module, dir, { dropout: 0 })
  return withGolden(join(dir, 'golden.safetensors'), decoder.module, (want) =>
    tidy(() => rowsOf({ golden, want, decoder, adapters })),
  )
}

/** [B, T] log-probabilities of the completions. Padding is on the left; positions are plain, as the reference's are. */
function logpsOf(c: Case): Tensor {
  const { want } = c
  const [prompt, completion, attention] = [want.get('prompt'), want.get('completion'), want.get('attention')]
  const ids = cat([prompt, completion], { dim: 1 }) // [B, P + T]
  const order = arange(0, ids.size(1), { dtype: 'int64', device: device() })
  const earlier = order.unsqueeze(1).ge(order.unsqueeze(0))
  const self = order.unsqueeze(1).eq(order.unsqueeze(0))
  const mask = earlier.logicalAnd(attention.ne(0).unsqueeze(1)).logicalOr(self).unsqueeze(1) // [B, 1, L, L]
  const hidden = c.decoder.forward(c.decoder.embed(ids), { mask })
  const read = hidden.narrow(1, prompt.size(1) - 1, completion.size(1))
  return tokenLogps(c.decoder.logits(read), completion)
}

function rowsOf(c: Case): CheckRow[] {
  const slots = trainOnly(c.decoder.module, [/\.lora_[AB]\./])
  const params = new Map(slots.map((slot) => [slot.name, tensorAt(slot)]))
  const optim = new AdamW([{ params, weightDecay: c.golden.weight_decay }])
  try {
    const mask = c.want.get('mask')
    const logpsRow = (name: string, got: Tensor, limit: Limit) =>
      compareTensor(name, got.mul(mask), c.want.get(name).mul(mask), limit)
    const reference = withoutAdapters(c, () => noGrad(() => logpsOf(c)))
    const logps = logpsOf(c)
    const rows = [
      logpsRow('ref_logps', reference, scores),
      logpsRow('logps', logps, scores),
      c.want.values('advantages', advantagesOf(c), { abs: 1e-5, words: '1e-5' }),
    ]
    const result = lossOf(c, logps, reference)
    backward(result.loss)
    rows.push(...lossRows(c, result))
    const norm = optim.clipGradNorm(c.golden.max_grad_norm)
    rows.push(...scalarRow('grad_norm_before_clip', norm, c.golden.grad_norm_before_clip, scalar))
    const grads = new Map([...params].map(([name, t]) => [name, t.grad()]))
    rows.push(
      ...tensorRows(c, 'grad.', (own, name) => {
        const got = grads.get(own)
        return got ? c.want.tensor(name, got, gradient) : absent(name)
      }),
    )
    rows.push(...givenGradientRows(c, params))
    optim.step(c.golden.lr)
    rows.push(...tensorRows(c, 'after.', (own, name) => weightRow(c, name, params.get(own), grads.get(own))))
    const loose = { ...scores, abs: 1e-3, words: '1e-3' }
    const after = () => noGrad(() => logpsOf(c))
    return [...rows, ...c.want.optional('logps_after', (name) => logpsRow(name, after(), loose))]
  } finally {
    optim.dispose()
  }
}

function withoutAdapters<R>(c: Case, fn: () => R): R {
  c.adapters.enabled = false
  try {
    return fn()
  } finally {
    c.adapters.enabled = true
  }
}

function settings(c: Case) {
  const { golden } = c
  const text = golden.std ?? ''
  const eps = /eps\s*([\d.e+-]+)/.exec(text)
  return resolveGrpo({
    lossType: (golden.loss_type ?? 'grpo') as 'grpo',
    beta: golden.beta,
    epsilon: golden.epsilon,
    numGenerations: c.want.get('rewards').size(-1),
    ddof: /^(biased|population)/.test(text) ? 0 : 1,
    ...(eps ? { advantageEps: Number(eps[1]) } : {}),
  })
}

function advantagesOf(c: Case): ArrayLike<number> {
  return groupAdvantages(c.want.numbers('rewards'), settings(c)).advantages
}

/** With gradient when the log-probs have one. */
function lossOf(c: Case, logps: Tensor, refLogps: Tensor): LossResult {
  const mask = c.want.get('mask')
  const advantages = tensor(Float32Array.from(advantagesOf(c)), { device: device() })
  const config = { ...settings(c), maxLogRatio: null, numItemsInBatch: mask.sum().item() }
  return grpoLoss({ logps, refLogps, oldLogps: c.want.get('old_logps'), mask, advantages }, config)
}

function lossRows(c: Case, own: LossResult): CheckRow[] {
  const given = lossOf(c, c.want.get('logps'), c.want.get('ref_logps'))
  const metrics = own.measure()()
  return [
    ...scalarRow('loss of the given log-probs', given.loss.item(), c.golden.loss, lossLimit),
    ...scalarRow('loss', own.loss.item(), c.golden.loss, wholeLoss),
    ...scalarRow('mean_kl', metrics['kl'], c.golden.mean_kl, scalar),
    ...scalarRow('clip_ratio', metrics['clip_ratio/region_mean'], c.golden.clip_ratio, scalar),
  ]
}

function scalarRow(name: string, got: number | undefined, want: number | undefined, limit: Limit): CheckRow[] {
  return want === undefined ? [] : [compareNumbers(name, [got ?? Number.NaN], tensor([want]), limit)]
}

/** `grad.base_model.model.PATH.lora_A.default.weight` in the file is PATH.lora_A.weight in the model. */
function tensorRows(c: Case, prefix: string, row: (own: string, name: string) => CheckRow): CheckRow[] {
  const ours = (name: string) => name.slice(prefix.length).replace('base_model.model.', '').replace('.default.', '.')
  return c.want.names(prefix).map((name) => row(ours(name), name))
}

/** The optimizer alone: the reference's own clipped gradients must give the reference's weights, every element of them. */
function givenGradientRows(c: Case, params: ReadonlyMap<string, Tensor>): CheckRow[] {
  return tensorRows(c, 'grad.', (own, name) => {
    const start = params.get(own)
    const after = name.replace('grad.', 'after.')
    if (!start || !c.want.has(after)) return absent(name)
    const copy = noGrad(() => start.detach().clone()).requiresGrad_()
    copy.setGrad(c.want.get(name).to(copy.dtype))
    const optim = new AdamW([{ params: new Map([[own, copy]]), weightDecay: c.golden.weight_decay }])
    try {
      optim.step(c.golden.lr)
      return compareTensor(`step_of_given_${name}`, copy, c.want.get(after), { abs: 1e-5, words: '1e-5' })
    } finally {
      optim.dispose()
    }
  })
}

const absent = (name: string): CheckRow => failedRow(name, 'a trained tensor', 'not in the model')

/** Gradients below this are noise of float32: a larger difference is one of the gradient itself, and excuses nothing. */
const nearZero = 1e-6

/**
 * The first step of AdamW moves a weight by lr g / (|g| + eps): where g is as small as eps its float32 noise decides the step.
 * So an element may differ by 1e-5, and if both gradients, ours and the reference's, are near 0, by what they explain.
 */
function weightRow(c: Case, name: string, own: Tensor | undefined, grad: Tensor | null | undefined): CheckRow {
  const theirs = name.replace('after.', 'grad.')
  if (!own || !grad || !c.want.has(theirs)) return absent(name)
  const move = (g: number) => (c.golden.lr * g) / (Math.abs(g) + 1e-8)
  const [g, r, expected] = [grad.numbers(), c.want.numbers(theirs), c.want.numbers(name)]
  let beyond = 0
  const excused = own.numbers().filter((v, i) => {
    const difference = Math.abs(v - expected[i]!)
    const tiny = Math.abs(g[i]!) < nearZero && Math.abs(r[i]!) < nearZero
    const left = difference - (tiny ? Math.abs(move(g[i]!) - move(r[i]!)) : 0)
    beyond = Math.max(beyond, Number.isNaN(left) ? Number.POSITIVE_INFINITY : left)
    return difference > 1e-5
  }).length
  const plain = c.want.tensor(name, own, { abs: 1e-5, words: '1e-5' })
  if (plain.pass || beyond > 1e-5) return plain
  const detail = `${plain.detail}; ${excused} elements follow from gradients near 0`
  return { ...plain, limit: '1e-5 beyond what gradients near 0 explain', pass: true, detail }
}
