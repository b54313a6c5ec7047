// SentencePiece's BPE: the adjacent pair whose union is the piece with the highest score is merged first, leftmost on ties.
import type { SentencePieceModel } from './sentencepiece-model.ts'
import { type SymbolTrie, unitsOf } from './sentencepiece-symbols.ts'

interface Symbol {
  start: number
  /** Exclusive; equal to start once merged into its left neighbour. */
  end: number
  previous: number
  next: number
  /** A user-defined piece never merges. */
  frozen: boolean
}

interface Pair {
  left: number
  right: number
  score: number
  length: number
}

/** Pieces of a normalised text; some may be no piece of the model. `userSymbols` holds UTF-16 units. */
export function bpePieces(model: SentencePieceModel, userSymbols: SymbolTrie, text: string): string[] {
  return new Merging(model, text, splitSymbols(text, userSymbols)).pieces()
}

/** Characters and user-defined pieces, linked. */
function splitSymbols(text: string, userSymbols: SymbolTrie): Symbol[] {
  const symbols: Symbol[] = []
  const units = unitsOf(text)
  for (let at = 0; at < text.length; ) {
    const known = userSymbols.longest(units, at)
    const width = known || (text.codePointAt(at)! > 0xffff ? 2 : 1)
    const end = at + width
    symbols.push({ start: at, end, frozen: known > 0, previous: symbols.length - 1, next: symbols.length + 1 })
    at = end
  }
  if (symbols.length > 0) symbols.at(-1)!.next = -1
  return symbols
}

class Merging {
  readonly #model: SentencePieceModel
  readonly #text: string
  readonly #symbols: Symbol[]
  readonly #agenda = new Agenda()
  /** How an unused piece was merged, to split it again. */
  readonly #halves = new Map<string, [string, string]>()

  constructor(model: SentencePieceModel, text: string, symbols: Symbol[]) {
    this.#model = model
    this.#text = text
    this.#symbols = symbols
  }

  pieces(): string[] {
    for (let i = 1; i < this.#symbols.length; i++) this.#consider(i - 1, i)
    for (let top = this.#agenda.pop(); top; top = this.#agenda.pop()) this.#merge(top)
    const out: string[] = []
    for (let i = this.#symbols.length > 0 ? 0 : -1; i >= 0; i = this.#symbols[i]!.next) this.#resegment(i, out)
    return out
  }

  #consider(left: number, right: number): void {
    if (left < 0 || right < 0) return
    const [a, b] = [this.#symbols[left]!, this.#symbols[right]!]
    if (a.frozen || b.frozen) return
    const piece = this.#text.slice(a.start, b.end)
    const id = this.#model.textIds.get(piece)
    if (id === undefined) return
    const { score, type } = this.#model.pieces[id]!
    this.#agenda.push({ left, right, score, length: piece.length })
    if (type === 'unused') this.#halves.set(piece, [this.#text.slice(a.start, a.end), this.#text.slice(b.start, b.end)])
  }

  #merge({ left, right, length }: Pair): void {
    const [a, b] = [this.#symbols[left]!, this.#symbols[right]!]
    const stale = a.start === a.end || b.start === b.end || b.end - a.start !== length
    if (stale) return
    a.end = b.end
    a.next = b.next
    if (b.next >= 0) this.#symbols[b.next]!.previous = left
    b.start = b.end
    this.#consider(a.previous, left)
    this.#consider(left, a.next)
  }

  #resegment(index: number, out: string[]): void {
    const { start, end } = this.#symbols[index]!
    const open = [this.#text.slice(start, end)]
    for (let piece = open.pop(); piece !== undefined; piece = open.pop()) {
      const id = this.#model.reservedIds.get(piece) ?? this.#model.textIds.get(piece)
      const halves = id !== undefined && this.#model.pieces[id]!.type === 'unused' && this.#halves.get(piece)
      if (halves) open.push(halves[1], halves[0])
      else out.push(piece)
    }
  }
}

/** A heap: highest score first, then leftmost. */
class Agenda {
  readonly #heap: Pair[] = []

  push(pair: Pair): void {
    const heap = this.#heap
    let at = heap.push(pair) - 1
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!before(pair, heap[parent]!)) break
      heap[at] = heap[parent]!
      at = parent
    }
    heap[at] = pair
  }

  pop(): Pair | undefined {
    const heap = this.#heap
    const top = heap[0]
    const last = heap.pop()
    if (last && heap.length > 0) this.#sink(last)
    return top
  }

  #sink(pair: Pair): void {
    const heap = this.#heap
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) child++
      if (!before(heap[child]!, pair)) break
      heap[at] = heap[child]!
      at = child
    }
    heap[at] = pair
  }
}

function before(a: Pair, b: Pair): boolean {
  return a.score > b.score || (a.score === b.score && a.left < b.left)
}
