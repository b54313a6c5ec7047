// Teacher-forced pass: log-probabilities of given completions, with gradient. The K completions of a prompt share one forward of
// the prompt: packed in one row, each completion sees the prompt and itself alone. N prompt tokens, L packed tokens, S hidden.
import { Mismatch } from '../../core/index.ts'
import { arange, cat, customFunction, stack, type Tensor, tensor, tidy, zeros } from '../../tensor/index.ts'
import type { Decoder } from './model.ts'
import {
  batchedAdditions,
  inputsOf,
  type PromptedModel,
  type PromptIds,
  positionsOf,
  positionTensor,
  withCompletions,
} from './prompted-model.ts'

export interface TeacherOptions {
  checkpointing?: boolean
}

/** Where a completion stands in the packed hidden states: the row that predicts its token 0, and the row that read token 0. */
interface Place {
  before: number
  start: number
}

/** Hidden states of prompts and completions, and where each completion's tokens stand. */
export class TeacherPass {
  readonly hidden: Tensor // [L, S], as the decoder gives them
  readonly #places: readonly Place[]
  readonly #completions: readonly Int32Array[]
  readonly #decoder: Decoder

  constructor(decoder: Decoder, hidden: Tensor, places: readonly Place[], completions: readonly Int32Array[]) {
    this.#decoder = decoder
    this.hidden = hidden
    this.#places = places
    this.#completions = completions
  }

  /** Row of the state after token j of completion k was read; -1: the prompt's last token, which predicts token 0. */
  rowOf(k: number, j: number): number {
    const place = this.#places[k]!
    return j < 0 ? place.before : place.start + j
  }

  /** Log-probabilities and entropies at a temperature, padded with 0 to the longest completion: [K, T] each. */
  logProbs(temperature = 1): { logps: Tensor; entropies: Tensor } {
    return tidy(() => {
      const T = Math.max(1, ...this.#completions.map((ids) => ids.length))
      const rows: bigint[] = []
      const targets: bigint[] = []
      const places: bigint[] = []
      this.#completions.forEach((ids, k) => {
        ids.forEach((id, j) => {
          rows.push(BigInt(this.rowOf(k, j - 1)))
          targets.push(BigInt(id))
          places.push(BigInt(k * T + j))
        })
      })
      const { device } = this.hidden
      const index = (values: bigint[]) => tensor(BigInt64Array.from(values), { device })
      const picked = this.hidden.indexSelect(0, index(rows))
      const both = headLogProbs(this.#decoder, picked, index(targets), temperature) // [2, M]
      const K = this.#completions.length
      const spread = zeros([2, K * T], { dtype: both.dtype, device })
        .indexCopy(1, index(places), both)
        .view([2, K, T])
      return { logps: spread.select(0, 0), entropies: spread.select(0, 1) }
    })
  }

  /** State of token j of completion k, where it was read: [1, S]. */
  stateAt(k: number, j: number): Tensor {
    return this.hidden.narrow(0, this.rowOf(k, j), 1)
  }
}

/** One forward over a prompt and its completions. The last token of each predicts nothing and is not read. */
export function teacherForce<P extends PromptIds>(
  model: PromptedModel<P>,
  prompt: P,
  completions: readonly Int32Array[],
  options: TeacherOptions = {},
): TeacherPass {
  requirePositions(model.decoder, prompt.ids.length + Math.max(0, ...completions.map((ids) => ids.length)))
  const hidden = tidy(() => {
    const { device } = model.placement
    const read = completions.map((ids) => ids.subarray(0, Math.max(0, ids.length - 1)))
    const N = prompt.ids.length
    const tail = Array.from(read, (ids) => Array.from(ids, BigInt)).flat()
    const { embeddings, additions } = inputsOf(model, prompt)
    const x =
      tail.length > 0
        ? cat([embeddings, model.decoder.embed(tensor(BigInt64Array.from(tail), [1, tail.length], { device }))], {
            dim: 1,
          })
        : embeddings
    const lengths = read.map((r) => r.length)
    const positions = positionTensor([withCompletions(positionsOf(model, prompt), lengths)], device)
    const mask = completions.length > 1 ? packedMask(N, lengths, device) : undefined
    const pass = { positions, mask, checkpointing: options.checkpointing }
    const added = batchedAdditions([additions], x.size(1), 'right')
    return model.decoder.forward(x, { ...pass, additions: added }).squeeze(0)
  })
  let at = prompt.ids.length
  const places = completions.map((ids) => {
    const start = at
    at += Math.max(0, ids.length - 1)
    return { before: prompt.ids.length - 1, start }
  })
  return new TeacherPass(model.decoder, hidden, places, completions)
}

/** One completion each for different prompts, padded on the right; a causal mask keeps the padding out. */
export function teacherForceRows<P extends PromptIds>(
  model: PromptedModel<P>,
  prompts: readonly P[],
  completions: readonly Int32Array[],
  options: TeacherOptions = {},
): TeacherPass {
  const lengths = prompts.map((p, r) => p.ids.length + Math.max(0, completions[r]!.length - 1))
  const L = Math.max(...lengths)
  requirePositions(model.decoder, L + 1)
  const hidden = tidy(() => {
    const { device } = model.placement
    const tails = completions.map((ids, r) =>
      BigInt64Array.from({ length: L - prompts[r]!.ids.length }, (_, j) => BigInt(j < ids.length - 1 ? ids[j]! : 0)),
    )
    const inputs = prompts.map((p) => inputsOf(model, p))
    const rows = inputs.map(({ embeddings }, r) =>
      cat([embeddings, model.decoder.embed(tensor(tails[r]!, [1, tails[r]!.length], { device }))], {
        dim: 1,
      }),
    )
    const stand = prompts.map((p, r) => withCompletions(positionsOf(model, p), [tails[r]!.length]))
    const additions = batchedAdditions(
      inputs.map((i) => i.additions),
      L,
      'right',
    )
    return model.decoder
      .forward(cat(rows), { positions: positionTensor(stand, device), additions, checkpointing: options.checkpointing })
      .flatten({ endDim: 1 }) // [R * L, S]
  })
  const places = prompts.map((p, r) => ({ before: r * L + p.ids.length - 1, start: r * L + p.ids.length }))
  return new TeacherPass(model.decoder, hidden, places, completions)
}

/** Beyond its positions a model would have to scale them, which no release does in training. */
function requirePositions(decoder: Decoder, length: number): void {
  const limit = decoder.cfg.max_position_embeddings
  if (length <= limit) return
  throw new Mismatch({ where: 'teacherForce', field: 'length', expected: `at most ${limit} positions`, got: length })
}

/** A token sees earlier tokens of the prompt and of its own completion: [1, 1, L, L]. */
function packedMask(promptLength: number, lengths: readonly number[], device: string): Tensor {
  const L = promptLength + lengths.reduce((a, b) => a + b, 0)
  const segment = new Int32Array(L)
  let at = promptLength
  lengths.forEach((n, k) => {
    segment.fill(k + 1, at, at + n)
    at += n
  })
  const owner = tensor(segment, [L], { device })
  const order = arange(0, L, { dtype: 'int64', device })
  const earlier = order.unsqueeze(1).ge(order.unsqueeze(0)) // [L, L]
  const visible = owner
    .unsqueeze(0)
    .eq(0)
    .logicalOr(owner.unsqueeze(1).eq(owner.unsqueeze(0)))
  return earlier.logicalAnd(visible).view([1, 1, L, L])
}

/** Rows of vocabulary-wide scores held at once. */
const chunkElements = 1 << 25

/**
 * [M, S] states, [M] ids -> [2, M]: log-probability of the id and entropy, in float32. With a frozen head the scores are made
 * in chunks of rows, in forward and again in backward, so that rows x vocabulary never exists; a trained head takes the plain way.
 */
export function headLogProbs(
  decoder: Decoder,
  states: Tensor,
  ids: Tensor,
  temperature: number,
  most = chunkElements,
): Tensor {
  const hidden = decoder.headInput(states)
  if (!decoder.headIsPlain) return scoreRows(decoder.headScores(hidden), ids, temperature)
  const rows = Math.max(1, Math.floor(most / decoder.cfg.vocab_size))
  const pieces = (h: Tensor): [number, number][] =>
    Array.from({ length: Math.ceil(h.size(0) / rows) }, (_, i) => [i * rows, Math.min(rows, h.size(0) - i * rows)])
  const forward = (h: Tensor, target: Tensor) =>
    cat(
      pieces(h).map(([start, n]) =>
        tidy(() => scoreRows(decoder.headScores(h.narrow(0, start, n)), target.narrow(0, start, n), temperature)),
      ),
      { dim: 1 },
    )
  const vjp = (h: Tensor, target: Tensor, grad: Tensor) =>
    cat(
      pieces(h).map(([start, n]) =>
        tidy(() =>
          hiddenGrad(decoder, h.narrow(0, start, n), target.narrow(0, start, n), grad.narrow(1, start, n), temperature),
        ),
      ),
    )
  // the ids are an input, not a closure: backward needs them after the caller's scope is gone
  return customFunction<[Tensor, Tensor]>(forward, ([h, target], grad) => [vjp(h, target, grad), null])(hidden, ids)
}

/** Float32 (or wider) scores [M, V] -> [2, M]. */
function scoreRows(logits: Tensor, ids: Tensor, temperature: number): Tensor {
  const scaled = temperature === 1 ? logits : logits.div(temperature)
  const logp = scaled.logSoftmax(-1)
  const chosen = logp.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
  const entropy = logp.exp().mul(logp).sum(-1).neg()
  return stack([chosen, entropy])
}

/** d/dh of grad[0] . logp + grad[1] . entropy: scores are recomputed, p - one-hot and the entropy term go back through the head. */
function hiddenGrad(decoder: Decoder, hidden: Tensor, ids: Tensor, grad: Tensor, temperature: number): Tensor {
  const logits = decoder.headScores(hidden)
  const logp = (temperature === 1 ? logits : logits.div(temperature)).logSoftmax(-1)
  const p = logp.exp() // [M, V]
  const [ofLogp, ofEntropy] = [grad.select(0, 0).unsqueeze(-1), grad.select(0, 1).unsqueeze(-1)]
  const mean = p.mul(logp).sum(-1, { keepdim: true })
  const direct = p.mul(ofLogp).neg().scatterAdd(-1, ids.unsqueeze(-1), ofLogp)
  const spread = p.mul(logp.sub(mean)).mul(ofEntropy).neg()
  const ofScores = direct.add(spread).div(temperature)
  return ofScores.to(hidden.dtype).matmul(decoder.headWeight.to(hidden.dtype))
}
