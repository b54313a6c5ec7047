// What prompts of one image begin with, read once for all calls of generation between two changes of the weights.
import { keep, type Tensor, tensor } from '../../../tensor/index.ts'
import type { PromptedModel, PromptIds } from '../../prompted-model.ts'

/** Prompts that share their first `prefix` tokens; always less than the shortest of them. */
export interface Group {
  members: number[]
  prefix: number
}

/** Keys and values of the first tokens of each group, one group after the other. L layers, N rows, K heads, D head size. */
export interface KnownRows {
  /** Tokens by group. */
  lengths: readonly number[]
  rows: Tensor // [L, N, 2K D]
}

/** A prompt that was read, and the rows its tokens took: `length` of them from `start` on. */
export interface ReadPrompt {
  prompt: PromptIds
  start: number
  length: number
}

interface Kept {
  model: object
  read: readonly ReadPrompt[]
  rows: Tensor
}

class KnownPrefixes {
  #depth = 0
  /** Of the policy, and of the weights inside `apart`. */
  readonly #kept: [Kept | null, Kept | null] = [null, null]
  #weights: 0 | 1 = 0

  /** Runs `fn`, in which the weights stay as they are: what one call reads of an image serves the next ones. Those of one call are kept. */
  during<R>(fn: () => R): R {
    this.#depth++
    try {
      return fn()
    } finally {
      if (--this.#depth === 0) for (const at of [0, 1] as const) this.#free(at)
    }
  }

  /** Runs `fn`, in which other weights are in place, the same ones each time: what they read is kept apart. */
  apart<R>(fn: () => R): R {
    const outer = this.#weights
    this.#weights = 1
    try {
      return fn()
    } finally {
      this.#weights = outer
    }
  }

  /** Null unless something is known of every group. The rows belong to the current scope. */
  find<P extends PromptIds>(
    model: PromptedModel<P>,
    prompts: readonly P[],
    groups: readonly Group[],
  ): KnownRows | null {
    const kept = this.#kept[this.#weights]
    if (kept?.model !== model) return null
    const found = groups.flatMap(({ members }) => {
      const asked = members.map((b) => prompts[b]!)
      const hits = kept.read.map((one) => ({ start: one.start, length: sharedBy(model, one, asked) }))
      return hits.find(({ length }) => length > 0) ?? []
    })
    if (found.length < groups.length) return null
    const at: number[] = []
    for (const { start, length } of found) for (let i = 0; i < length; i++) at.push(start + i)
    const index = tensor(Int32Array.from(at), { device: model.placement.device })
    return { lengths: found.map((f) => f.length), rows: kept.rows.indexSelect(1, index) }
  }

  /** Rows of all layers as they were read [L, N, 2K D], in place of what is kept; nothing outside of `during`. */
  keep(model: object, read: readonly ReadPrompt[], rows: Tensor): void {
    if (this.#depth === 0) return
    this.#free(this.#weights)
    this.#kept[this.#weights] = { model, read, rows: keep(rows.alias()) }
  }

  #free(at: 0 | 1): void {
    this.#kept[at]?.rows.dispose()
    this.#kept[at] = null
  }
}

/** Tokens of a prompt that was read which all of these begin with; each of them has at least one more. */
function sharedBy<P extends PromptIds>(model: PromptedModel<P>, one: ReadPrompt, asked: readonly P[]): number {
  const own = asked.map((prompt) => Math.min(model.sharedPrefix?.(one.prompt as P, prompt) ?? 0, prompt.ids.length - 1))
  return Math.min(one.length, ...own)
}

export const knownPrefixes = new KnownPrefixes()
