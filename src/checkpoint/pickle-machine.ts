import { isUtf8 } from 'node:buffer'
import { Mismatch, refuseAt } from '../core/index.ts'

/** Builds a value of an allowed Python name from its arguments; throws nothing but `fail(...)`. */
export type PyCall = (args: readonly unknown[], fail: Fail) => unknown
export type Fail = (expected: string, got: unknown) => never

/** A Python class or function that a pickle named and that is on the list of allowed ones. Nothing of Python runs. */
export class PyGlobal {
  readonly name: string
  /** Null: may be named (a storage class, a dtype) but not called. */
  readonly call: PyCall | null

  constructor(name: string, call: PyCall | null) {
    this.name = name
    this.call = call
  }
}

/** A value that takes a state after it was created (Python's BUILD). */
export interface Buildable {
  build(state: unknown, fail: Fail): void
}

export interface PickleOptions {
  where: string
  /** Allowed `module.name`s; undefined refuses. */
  find(name: string): PyCall | null | undefined
  /** Python's persistent ids, which PyTorch uses for storages. */
  persistent?: (id: unknown, fail: Fail) => unknown
}

/** A JavaScript Map holds little more. */
const maxMemo = 16_000_000

/** The state of one reading: a cursor over the bytes, the stack with its marks, the memo. */
export class PickleMachine {
  readonly options: PickleOptions
  readonly stack: unknown[] = []
  readonly #marks: number[] = []
  readonly #memo: unknown[] = []
  readonly #farMemo = new Map<number, unknown>()
  readonly #bytes: Buffer
  #at = 0
  #opAt = 0
  #opName = 'start'

  constructor(bytes: Uint8Array, options: PickleOptions) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    this.options = options
  }

  get left(): number {
    return this.#bytes.length - this.#at
  }

  fail: Fail = (expected, got) => {
    throw new Mismatch({ where: this.options.where, field: `${this.#opName} at byte ${this.#opAt}`, expected, got })
  }

  nextOp(): number {
    this.#opAt = this.#at
    this.#opName = 'opcode'
    return this.byte()
  }

  /** Names the running opcode in errors. */
  enter(name: string): void {
    this.#opName = name
  }

  // Cursor.
  take(length: number): Buffer {
    if (length > this.left) this.fail(`${length} more bytes`, `${this.left} left`)
    this.#at += length
    return this.#bytes.subarray(this.#at - length, this.#at)
  }

  byte(): number {
    const value = this.#bytes[this.#at]
    if (value === undefined) return this.fail('1 more byte', 'the end of the file')
    this.#at++
    return value
  }

  u32(): number {
    return this.take(4).readUInt32LE()
  }

  u64(): number {
    const value = this.take(8).readBigUInt64LE()
    return value > BigInt(this.#bytes.length) ? this.fail('a length inside the file', value) : Number(value)
  }

  /** The bytes up to a newline, which is eaten. */
  line(): Buffer {
    const end = this.#bytes.indexOf(10, this.#at)
    if (end < 0) this.fail('a line that ends', 'the end of the file')
    const line = this.take(end - this.#at)
    this.#at++
    return line
  }

  text(bytes: Buffer): string {
    return isUtf8(bytes) ? bytes.toString('utf8') : this.fail('UTF-8 text', 'other bytes')
  }

  // Stack. Nothing is taken from below the last mark.
  push(value: unknown): void {
    this.stack.push(value)
  }

  pop(): unknown {
    this.#need()
    return this.stack.pop()
  }

  top(): unknown {
    this.#need()
    return this.stack[this.stack.length - 1]
  }

  #need(): void {
    if (this.stack.length <= (this.#marks.at(-1) ?? 0)) this.fail('a value on the stack', 'none')
  }

  mark(): void {
    this.#marks.push(this.stack.length)
  }

  get atMark(): boolean {
    return this.#marks.at(-1) === this.stack.length
  }

  /** Everything above the last mark; the mark goes too. */
  popMark(): unknown[] {
    const mark = this.#marks.pop()
    return mark === undefined ? this.fail('a mark on the stack', 'none') : this.stack.splice(mark)
  }

  // Memo. Python numbers it from 0 or 1 upward, so a list serves; a far index goes to the map.
  put(index: number): void {
    if (this.#memo.length + this.#farMemo.size >= maxMemo) this.fail(`at most ${maxMemo} memo entries`, 'more')
    const value = this.top()
    if (index < this.#memo.length) this.#memo[index] = value
    else if (index === this.#memo.length) {
      this.#memo.push(value)
      this.#farMemo.delete(index)
    } else this.#farMemo.set(index, value)
  }

  memoize(): void {
    this.put(this.#memo.length + this.#farMemo.size)
  }

  get(index: number): void {
    if (index < this.#memo.length) this.push(this.#memo[index])
    else if (this.#farMemo.has(index)) this.push(this.#farMemo.get(index))
    else this.fail('a memo entry that exists', index)
  }

  // Names and calls.
  global(module: string, name: string): void {
    const full = `${module}.${name}`
    const call = this.options.find(full)
    if (call === undefined) this.refuse(full)
    this.push(new PyGlobal(full, call ?? null))
  }

  refuse(name: string): never {
    const got = `${name.slice(0, 200)}, which this reader does not build`
    const hint =
      'only data is read, no code is run; load the file in Python and save the tensors as safetensors (data as JSON)'
    return refuseAt(this.options.where)(`${this.#opName} at byte ${this.#opAt}`, 'plain data or tensors', got, hint)
  }
}
