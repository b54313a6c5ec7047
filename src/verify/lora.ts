// Recomputes a golden folder of one GRPO step with PEFT adapters: scores, advantages, loss, clipped gradients, AdamW.
// B rows, P prompt tokens, T completion tokens, V vocabulary.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { loadAdapter, openWeights, readTensors } from '../checkpoint/index.ts'
import type { CheckRow } from '../core/index.ts'
import { type Decoder, loadLanguageModel } from '../llm/index.ts'
import { type AdapterState, tensorAt, tokenLogps, trainOnly } from '../nn/index.ts'
import { AdamW } from '../optim/index.ts'
import { groupAdvantages, grpoLoss, type LossResult, resolveGrpo } from '../rl/index.ts'
import { arange, backward, cat, noGrad, type Tensor, tensor, tidy } from '../tensor/index.ts'
import { compareNumbers, compareTensor, type Limit, storedTensor } from './compare.ts'
import { device } from './device.ts'

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
  want: Map<string, Tensor>
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
  const golden = JSON.parse(readFileSync(join(dir, 'golden.json'), 'utf8')) as Golden
  const decoder = loadLanguageModel(join(dir, 'config.json'), join(dir, 'base.safetensors'), { device: device() })
  const adapters = loadAdapter(decoder.module, dir, { dropout: 0 })
  const want = readTensors(openWeights(join(dir, 'golden.safetensors')), device())
  try {
    return tidy(() => rowsOf({ golden, want, decoder, adapters }))
  } finally {
    for (const t of [...want.values(), ...decoder.module.parameters().values()]) t.dispose()
  }
}

const get = (c: Case, name: string): Tensor => storedTensor(c.want, name)

/** [B, T] log-probabilities of the completions. Padding is on the left; positions are plain, as the reference's are. */
function logpsOf(c: Case): Tensor {
  const [prompt, completion, attention] = ['prompt', 'completion', 'attention'].map((n) => get(c, n)) as [
    Tensor,
    Tensor,
    Tensor,
  ]
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
    const mask = get(c, 'mask')
    const reference = withoutAdapters(c, () => noGrad(() => logpsOf(c)))
    const logps = logpsOf(c)
    const rows = [
      compareTensor('ref_logps', reference.mul(mask), get(c, 'ref_logps').mul(mask), scores),
      compareTensor('logps', logps.mul(mask), get(c, 'logps').mul(mask), scores),
      advantagesRow(c),
    ]
    const result = lossOf(c, logps, reference)
    backward(result.loss)
    rows.push(...lossRows(c, result))
    const norm = optim.clipGradNorm(c.golden.max_grad_norm)
    rows.push(...scalarRow('grad_norm_before_clip', norm, c.golden.grad_norm_before_clip, scalar))
    const grads = new Map([...params].map(([name, t]) => [name, t.grad()]))
    rows.push(...tensorRows(c, 'grad.', (own, name, want) => gradientRow(name, grads.get(own), want)))
    rows.push(...givenGradientRows(c, params))
    optim.step(c.golden.lr)
    rows.push(
      ...tensorRows(c, 'after.', (own, name, want) => weightRow(c, name, params.get(own), want, grads.get(own))),
    )
    if (c.want.has('logps_after')) {
      const after = noGrad(() => logpsOf(c))
      rows.push(
        compareTensor('logps_after', after.mul(mask), get(c, 'logps_after').mul(mask), {
          ...scores,
          abs: 1e-3,
          words: '1e-3',
        }),
      )
    }
    return rows
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
    numGenerations: get(c, 'rewards').size(-1),
    ddof: /^(biased|population)/.test(text) ? 0 : 1,
    ...(eps ? { advantageEps: Number(eps[1]) } : {}),
  })
}

function advantagesRow(c: Case): CheckRow {
  const { advantages } = groupAdvantages(get(c, 'rewards').numbers(), settings(c))
  return compareNumbers('advantages', advantages, get(c, 'advantages'), { abs: 1e-5, words: '1e-5' })
}

/** With gradient when the log-probs have one. */
function lossOf(c: Case, logps: Tensor, refLogps: Tensor): LossResult {
  const mask = get(c, 'mask')
  const { advantages } = groupAdvantages(get(c, 'rewards').numbers(), settings(c))
  const rest = {
    oldLogps: get(c, 'old_logps'),
    mask,
    advantages: tensor(Float32Array.from(advantages), { device: device() }),
  }
  const config = { ...settings(c), maxLogRatio: null, numItemsInBatch: mask.sum().item() }
  return grpoLoss({ logps, refLogps, ...rest }, config)
}

function lossRows(c: Case, own: LossResult): CheckRow[] {
  const given = lossOf(c, get(c, 'logps'), get(c, 'ref_logps'))
  const metrics = own.metrics()
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
function tensorRows(c: Case, prefix: string, row: (own: string, name: string, want: Tensor) => CheckRow): CheckRow[] {
  const names = [...c.want.keys()].filter((name) => name.startsWith(prefix))
  const ours = (name: string) => name.slice(prefix.length).replace('base_model.model.', '').replace('.default.', '.')
  return names.map((name) => row(ours(name), name, get(c, name)))
}

/** The optimizer alone: the reference's own clipped gradients must give the reference's weights, every element of them. */
function givenGradientRows(c: Case, params: ReadonlyMap<string, Tensor>): CheckRow[] {
  return tensorRows(c, 'grad.', (own, name, grad) => {
    const start = params.get(own)
    const want = c.want.get(name.replace('grad.', 'after.'))
    if (!start || !want) return absent(name)
    const copy = noGrad(() => start.detach().clone()).requiresGrad_()
    copy.setGrad(grad.to(copy.dtype))
    const optim = new AdamW([{ params: new Map([[own, copy]]), weightDecay: c.golden.weight_decay }])
    try {
      optim.step(c.golden.lr)
      return compareTensor(`step_of_given_${name}`, copy, want, { abs: 1e-5, words: '1e-5' })
    } finally {
      optim.dispose()
    }
  })
}

function absent(name: string): CheckRow {
  return { name, abs: Number.NaN, rel: Number.NaN, limit: 'a trained tensor', pass: false, detail: 'not in the model' }
}

function gradientRow(name: string, got: Tensor | null | undefined, want: Tensor): CheckRow {
  return got ? compareTensor(name, got, want, gradient) : absent(name)
}

/** Gradients below this are noise of float32: a larger difference is one of the gradient itself, and excuses nothing. */
const nearZero = 1e-6

/**
 * The first step of AdamW moves a weight by lr g / (|g| + eps): where g is as small as eps its float32 noise decides the step.
 * So an element may differ by 1e-5, and if both gradients, ours and the reference's, are near 0, by what they explain.
 */
function weightRow(
  c: Case,
  name: string,
  own: Tensor | undefined,
  want: Tensor,
  grad: Tensor | null | undefined,
): CheckRow {
  const theirs = c.want.get(name.replace('after.', 'grad.'))
  if (!own || !grad || !theirs) return absent(name)
  const move = (g: number) => (c.golden.lr * g) / (Math.abs(g) + 1e-8)
  const [g, r] = [grad.numbers(), theirs.numbers()]
  const expected = want.numbers()
  let beyond = 0
  const excused = own.numbers().filter((v, i) => {
    const difference = Math.abs(v - expected[i]!)
    const tiny = Math.abs(g[i]!) < nearZero && Math.abs(r[i]!) < nearZero
    const left = difference - (tiny ? Math.abs(move(g[i]!) - move(r[i]!)) : 0)
    beyond = Math.max(beyond, Number.isNaN(left) ? Number.POSITIVE_INFINITY : left)
    return difference > 1e-5
  }).length
  const plain = compareTensor(name, own, want, { abs: 1e-5, words: '1e-5' })
  if (plain.pass || beyond > 1e-5) return plain
  const detail = `${plain.detail}; ${excused} elements follow from gradients near 0`
  return { ...plain, limit: '1e-5 beyond what gradients near 0 explain', pass: true, detail }
}
