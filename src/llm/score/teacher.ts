// Teacher-forced pass: log-probabilities of given completions, with gradient. The K completions of a prompt share one forward of
// the prompt: packed in one row, each completion sees the prompt and itself alone. R prompts, N tokens of one, L of a packed row, S hidden.
import { Mismatch } from '../../core/index.ts'
import {
  arange,
  cat,
  customFunction,
  int64Tensor,
  stack,
  type Tensor,
  tensor,
  tidy,
  zeros,
} from '../../tensor/index.ts'
import type { Decoder } from '../model.ts'
import {
  allInputsOf,
  batchedAdditions,
  type PromptedModel,
  type PromptIds,
  positionsOf,
  positionTensor,
  withCompletions,
} from '../prompted-model.ts'
import type { TrainingHead } from './by-hand/head.ts'
import { type CompletionRows, packedStates } from './by-hand/packed.ts'

export interface TeacherOptions {
  /** Less is kept for backward and recomputed: whole layers, or gate and up if layers have a hand-written derivative. */
  checkpointing?: boolean
  /** Layers with a hand-written derivative: if they are faster (absent), if they are possible (true), never (false). */
  packed?: boolean
}

export interface LogProbs {
  logps: Tensor // [K, T]
  entropies: Tensor // [K, T]
}

interface PassParts {
  readonly decoder: Decoder
  readonly hidden: Tensor // [rows, S], as the decoder gives them
  readonly places: readonly CompletionRows[]
  readonly groups: readonly (readonly Int32Array[])[]
  readonly head?: TrainingHead | null
}

/** Hidden states of prompts and completions, and the rows of each completion's tokens. Completions are counted over all prompts. */
export class TeacherPass {
  readonly #of: PassParts
  readonly #completions: readonly Int32Array[]

  constructor(of: PassParts) {
    this.#of = of
    this.#completions = of.groups.flat()
  }

  get hidden(): Tensor {
    return this.#of.hidden
  }

  /** The same states for the completions of `count` prompts alone, from prompt `from` on. */
  part(from: number, count: number): TeacherPass {
    const groups = this.#of.groups.slice(from, from + count)
    const first = this.#of.groups.slice(0, from).flat().length
    return new TeacherPass({ ...this.#of, groups, places: this.#of.places.slice(first, first + groups.flat().length) })
  }

  /** Row of the state after token j of completion k was read; -1: the prompt's last token, which predicts token 0. */
  rowOf(k: number, j: number): number {
    const place = this.#of.places[k]!
    return j < 0 ? place.before : place.start + j
  }

  /** Log-probabilities and entropies at a temperature, padded with 0 to the longest completion: [K, T] each. */
  logProbs(temperature = 1): LogProbs {
    return tidy(() => {
      const T = longest(this.#completions)
      const rows: number[] = []
      const targets: number[] = []
      const places: number[] = []
      this.#completions.forEach((ids, k) => {
        ids.forEach((id, j) => {
          rows.push(this.rowOf(k, j - 1))
          targets.push(id)
          places.push(k * T + j)
        })
      })
      const [states, ids] = [this.#rows(rows), this.#index(targets)]
      const { decoder, head } = this.#of
      const both = head
        ? head.logProbs(decoder.headInput(states), ids, temperature)
        : headLogProbs(decoder, states, ids, temperature) // [2, M]
      const K = this.#completions.length
      const spread = zeros([2, K * T], { dtype: both.dtype, device: both.device })
        .indexCopy(1, this.#index(places), both)
        .view([2, K, T])
      return { logps: spread.select(0, 0), entropies: spread.select(0, 1) }
    })
  }

  /** The same for each prompt's completions, padded to the longest of them. */
  logProbsByPrompt(temperature = 1): LogProbs[] {
    return tidy(() => {
      const all = this.logProbs(temperature)
      let first = 0
      return this.#of.groups.map((group) => {
        const own = (t: Tensor) => t.narrow(0, first, group.length).narrow(1, 0, longest(group))
        const part = { logps: own(all.logps), entropies: own(all.entropies) }
        first += group.length
        return part
      })
    })
  }

  /** State of token j of completion k, where it was read: [1, S]. */
  stateAt(k: number, j: number): Tensor {
    return this.hidden.narrow(0, this.rowOf(k, j), 1)
  }

  /** The same for several completions: [n, S]. */
  statesAt(places: readonly { k: number; j: number }[]): Tensor {
    return this.#rows(places.map(({ k, j }) => this.rowOf(k, j)))
  }

  #rows(rows: readonly number[]): Tensor {
    return this.hidden.indexSelect(0, this.#index(rows))
  }

  #index(values: readonly number[]): Tensor {
    return int64Tensor(values, { device: this.hidden.device })
  }
}

function longest(completions: readonly Int32Array[]): number {
  return Math.max(1, ...completions.map((ids) => ids.length))
}

/** One forward over a prompt and its completions. */
export function teacherForce<P extends PromptIds>(
  model: PromptedModel<P>,
  prompt: P,
  completions: readonly Int32Array[],
  options: TeacherOptions = {},
): TeacherPass {
  return teacherForceGroups(model, [prompt], [completions], options)
}

/**
 * One forward over prompts and the completions of each: a row for each prompt, padded on the right. The last token of a completion
 * predicts nothing and is not read.
 */
export function teacherForceGroups<P extends PromptIds>(
  model: PromptedModel<P>,
  prompts: readonly P[],
  completions: readonly (readonly Int32Array[])[],
  options: TeacherOptions = {},
): TeacherPass {
  const packed = prompts.map(({ ids }, r) => {
    return { prompt: ids.length, read: completions[r]!.map((c) => c.subarray(0, Math.max(0, c.length - 1))) }
  })
  requirePositions(model.decoder, Math.max(...packed.map((p, r) => p.prompt + longest(completions[r]!))))
  const { checkpointing, packed: wanted } = options
  const own = wanted === false ? null : packedStates(model, prompts, completions, { checkpointing, anywhere: wanted })
  const { decoder } = model
  if (own) return new TeacherPass({ ...own, decoder, hidden: joined(own.hidden), groups: completions })
  const L = Math.max(...packed.map(({ prompt, read }) => read.reduce((n, ids) => n + ids.length, prompt)))
  const hidden = tidy(() => {
    const { device } = model.placement
    const inputs = allInputsOf(model, prompts)
    const x = cat(inputs.map(({ embeddings }, r) => packedRow(model, embeddings, packed[r]!, L)))
    const positions = prompts.map((prompt, r) => {
      const lengths = packed[r]!.read.map((ids) => ids.length)
      return withCompletions(positionsOf(model, prompt), lengths, L)
    })
    const added = inputs.map((i) => i.additions)
    const additions = batchedAdditions(added, L, 'right')
    const mask = completions.some((c) => c.length > 1) ? packedMask(packed, L, device) : undefined
    const pass = { positions: positionTensor(positions, device), mask, additions, checkpointing: options.checkpointing }
    return decoder.forward(x, pass).flatten({ endDim: 1 }) // [R * L, S]
  })
  return new TeacherPass({ decoder, hidden: joined(hidden), places: placesOf(packed, L), groups: completions })
}

/** A prompt's length and what is read of its completions. */
interface Packed {
  prompt: number
  read: readonly Int32Array[]
}

/** The prompt's embeddings and those of its completions, filled up with token 0: [1, L, S]. */
function packedRow<P extends PromptIds>(
  model: PromptedModel<P>,
  embeddings: Tensor,
  { prompt, read }: Packed,
  L: number,
): Tensor {
  if (L === prompt) return embeddings
  const tail = new BigInt64Array(L - prompt)
  tail.set(BigInt64Array.from(read.flatMap((ids) => Array.from(ids, BigInt))))
  const behind = model.decoder.embed(tensor(tail, [1, tail.length], { device: model.placement.device }))
  return cat([embeddings, behind], { dim: 1 })
}

function placesOf(packed: readonly Packed[], L: number): CompletionRows[] {
  return packed.flatMap(({ prompt, read }, r) => {
    let start = r * L + prompt
    return read.map((ids) => {
      const place = { before: r * L + prompt - 1, start }
      start += ids.length
      return place
    })
  })
}

/** The head has a hand-written derivative, other readers of the states use libtorch's: both are joined here, so that backward passes through the layers once. */
const joined = customFunction<[Tensor]>(
  (hidden) => hidden,
  (_, grad) => [grad],
)

/** Beyond its positions a model would have to scale them, which no release does in training. */
function requirePositions(decoder: Decoder, length: number): void {
  const limit = decoder.cfg.max_position_embeddings
  if (length <= limit) return
  throw new Mismatch({ where: 'teacherForce', field: 'length', expected: `at most ${limit} positions`, got: length })
}

/** A token sees earlier tokens of the prompt and of the same completion: [R, 1, L, L]. */
function packedMask(packed: readonly Packed[], L: number, device: string): Tensor {
  const segment = new Int32Array(packed.length * L).fill(-1) // what fills a row up is nobody's
  packed.forEach(({ prompt, read }, r) => {
    let at = r * L + prompt
    segment.fill(0, r * L, at)
    read.forEach((ids, k) => {
      segment.fill(k + 1, at, at + ids.length)
      at += ids.length
    })
  })
  const owner = tensor(segment, [packed.length, 1, L], { device })
  const order = arange(0, L, { dtype: 'int64', device })
  const earlier = order.unsqueeze(1).ge(order.unsqueeze(0)) // [L, L]
  const visible = owner.eq(0).logicalOr(owner.transpose(1, 2).eq(owner)) // [R, L, L]
  return earlier.logicalAnd(visible).unsqueeze(1)
}

/** Rows of vocabulary-wide scores in memory at once. */
const chunkElements = 1 << 25

/**
 * [M, S] states, [M] ids -> [2, M]: log-probability of the id and entropy, in float32. With a frozen head the scores are computed
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
  // the ids are an input, not a closure: backward needs them after the caller's scope has ended
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
