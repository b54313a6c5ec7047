import { isUtf8 } from 'node:buffer'
import { type Buildable, type PickleMachine, PyGlobal } from './pickle-machine.ts'

// One function per pickle opcode (protocols 0 to 5). Opcodes that make objects by code are refused by name.

type Op = readonly [name: string, run: (m: PickleMachine) => void]
export const ops: (Op | undefined)[] = []

function op(code: string | number, name: string, run: (m: PickleMachine) => void): void {
  ops[typeof code === 'number' ? code : code.charCodeAt(0)] = [name, run]
}

// Numbers and constants.
op('N', 'NONE', (m) => m.push(null))
op(0x88, 'NEWTRUE', (m) => m.push(true))
op(0x89, 'NEWFALSE', (m) => m.push(false))
op('I', 'INT', (m) => m.push(intLine(m, /^[+-]?\d{1,4096}$/)))
op('L', 'LONG', (m) => m.push(intLine(m, /^[+-]?\d{1,4096}L?$/)))
op('J', 'BININT', (m) => m.push(m.take(4).readInt32LE()))
op('K', 'BININT1', (m) => m.push(m.byte()))
op('M', 'BININT2', (m) => m.push(m.take(2).readUInt16LE()))
op(0x8a, 'LONG1', (m) => m.push(long(m, m.byte())))
op(0x8b, 'LONG4', (m) => m.push(long(m, m.u32())))
op('F', 'FLOAT', (m) => m.push(floatLine(m)))
op('G', 'BINFLOAT', (m) => m.push(m.take(8).readDoubleBE()))

function intLine(m: PickleMachine, form: RegExp): unknown {
  const text = m.line().toString('latin1').trim()
  if (text === '00' || text === '01') return text === '01'
  if (!form.test(text)) m.fail('a whole number', text.slice(0, 40))
  return narrow(BigInt(text.replace(/^\+/, '').replace(/L$/, '')))
}

function narrow(value: bigint): number | bigint {
  const n = Number(value)
  return Number.isSafeInteger(n) ? n : value
}

/** Little-endian two's complement of any length. */
function long(m: PickleMachine, length: number): number | bigint {
  if (length > 4096) m.fail('a number of at most 4096 bytes', length)
  if (length === 0) return 0
  const hex = Buffer.from(m.take(length)).reverse().toString('hex')
  return narrow(BigInt.asIntN(8 * length, BigInt(`0x${hex}`)))
}

function floatLine(m: PickleMachine): number {
  const text = m.line().toString('latin1').trim()
  const special: Record<string, number> = { nan: Number.NaN, inf: Infinity, '-inf': -Infinity }
  if (Object.hasOwn(special, text)) return special[text]!
  if (!/^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(text)) m.fail('a number', text.slice(0, 40))
  return Number(text)
}

// Text and bytes. Python 2's str is text when it is UTF-8, else Latin-1.
op('S', 'STRING', (m) => m.push(oldText(unquote(m))))
op('T', 'BINSTRING', (m) => m.push(oldText(m.take(m.u32()))))
op('U', 'SHORT_BINSTRING', (m) => m.push(oldText(m.take(m.byte()))))
op('V', 'UNICODE', (m) => m.push(rawUnicode(m)))
op('X', 'BINUNICODE', (m) => m.push(m.text(m.take(m.u32()))))
op(0x8c, 'SHORT_BINUNICODE', (m) => m.push(m.text(m.take(m.byte()))))
op(0x8d, 'BINUNICODE8', (m) => m.push(m.text(m.take(m.u64()))))
op('B', 'BINBYTES', (m) => m.push(bytesOf(m.take(m.u32()))))
op('C', 'SHORT_BINBYTES', (m) => m.push(bytesOf(m.take(m.byte()))))
op(0x8e, 'BINBYTES8', (m) => m.push(bytesOf(m.take(m.u64()))))
op(0x96, 'BYTEARRAY8', (m) => m.push(bytesOf(m.take(m.u64()))))

function bytesOf(view: Buffer): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.length)
}

function oldText(bytes: Buffer): string {
  return bytes.toString(isUtf8(bytes) ? 'utf8' : 'latin1')
}

const escapes: Record<string, string> = { n: '\n', t: '\t', r: '\r', a: '\x07', b: '\b', f: '\f', v: '\v' }

/** Python's repr of a byte string, on one line. */
function unquote(m: PickleMachine): Buffer {
  const line = m.line().toString('latin1').trim()
  const quote = line[0]
  if (line.length < 2 || (quote !== "'" && quote !== '"') || !line.endsWith(quote)) m.fail('a quoted string', line[0])
  const body = line.slice(1, -1).replace(/\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|[\s\S])/g, (_, e: string) => {
    if (e.length > 1 && e[0] === 'x') return String.fromCharCode(Number.parseInt(e.slice(1), 16))
    if (/^[0-7]/.test(e)) return String.fromCharCode(Number.parseInt(e, 8) & 0xff)
    return escapes[e] ?? (e === '\\' || e === "'" || e === '"' ? e : `\\${e}`)
  })
  return Buffer.from(body, 'latin1')
}

/** Python's raw-unicode-escape: Latin-1 with \uXXXX and \UXXXXXXXX. */
function rawUnicode(m: PickleMachine): string {
  return m
    .line()
    .toString('latin1')
    .replace(/\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})/g, (_, short?: string, wide?: string) => {
      const code = Number.parseInt(short ?? wide!, 16)
      return code > 0x10ffff ? m.fail('a Unicode code point', code) : String.fromCodePoint(code)
    })
}

// Lists, tuples, dicts, sets.
op(']', 'EMPTY_LIST', (m) => m.push([]))
op(')', 'EMPTY_TUPLE', (m) => m.push([]))
op('}', 'EMPTY_DICT', (m) => m.push(new Map()))
op(0x8f, 'EMPTY_SET', (m) => m.push(new Set()))
op('l', 'LIST', (m) => m.push(m.popMark()))
op('t', 'TUPLE', (m) => m.push(m.popMark()))
op(0x85, 'TUPLE1', (m) => m.push([m.pop()]))
op(0x86, 'TUPLE2', (m) => pushTuple(m, 2))
op(0x87, 'TUPLE3', (m) => pushTuple(m, 3))
op('d', 'DICT', (m) => {
  const items = m.popMark()
  m.push(new Map())
  setItems(m, items)
})
op('a', 'APPEND', (m) => extend(m, [m.pop()]))
op('e', 'APPENDS', (m) => extend(m, m.popMark()))
op('s', 'SETITEM', (m) => {
  const value = m.pop()
  const key = m.pop()
  setItems(m, [key, value])
})
op('u', 'SETITEMS', (m) => setItems(m, m.popMark()))
op(0x90, 'ADDITEMS', (m) => addItems(m, m.popMark()))
op(0x91, 'FROZENSET', (m) => m.push(new Set(m.popMark())))

function pushTuple(m: PickleMachine, length: number): void {
  const items: unknown[] = []
  for (let i = 0; i < length; i++) items.unshift(m.pop())
  m.push(items)
}

function extend(m: PickleMachine, items: readonly unknown[]): void {
  const list = m.top()
  if (!Array.isArray(list)) m.fail('a list to append to', kind(list))
  for (const item of items) list.push(item)
}

function setItems(m: PickleMachine, items: readonly unknown[]): void {
  const dict = m.top()
  if (!(dict instanceof Map)) m.fail('a dict to set items of', kind(dict))
  if (items.length % 2 !== 0) m.fail('keys and values in pairs', `${items.length} items`)
  for (let i = 0; i < items.length; i += 2) dict.set(items[i], items[i + 1])
}

function addItems(m: PickleMachine, items: readonly unknown[]): void {
  const set = m.top()
  if (!(set instanceof Set)) m.fail('a set to add to', kind(set))
  for (const item of items) set.add(item)
}

function kind(value: unknown): string {
  if (value === null) return 'None'
  if (value instanceof PyGlobal) return value.name
  return typeof value === 'object' ? (Array.isArray(value) ? 'list' : 'object') : typeof value
}

// Stack, memo, framing.
op('(', 'MARK', (m) => m.mark())
op('0', 'POP', (m) => (m.atMark ? m.popMark() : m.pop()))
op('1', 'POP_MARK', (m) => m.popMark())
op('2', 'DUP', (m) => m.push(m.top()))
op('p', 'PUT', (m) => m.put(memoLine(m)))
op('q', 'BINPUT', (m) => m.put(m.byte()))
op('r', 'LONG_BINPUT', (m) => m.put(m.u32()))
op(0x94, 'MEMOIZE', (m) => m.memoize())
op('g', 'GET', (m) => m.get(memoLine(m)))
op('h', 'BINGET', (m) => m.get(m.byte()))
op('j', 'LONG_BINGET', (m) => m.get(m.u32()))
op(0x80, 'PROTO', (m) => {
  const protocol = m.byte()
  if (protocol > 5) m.fail('pickle protocol 0 to 5', protocol)
})
op(0x95, 'FRAME', (m) => {
  const length = m.u64()
  if (length > m.left) m.fail(`a frame of at most ${m.left} bytes`, length)
})

function memoLine(m: PickleMachine): number {
  const text = m.line().toString('latin1').trim()
  return /^\d{1,10}$/.test(text) ? Number(text) : m.fail('a memo index', text.slice(0, 40))
}

// Names and calls: the list of allowed names decides.
op('c', 'GLOBAL', (m) => {
  const module = m.text(m.line())
  m.global(module, m.text(m.line()))
})
op(0x93, 'STACK_GLOBAL', (m) => {
  const name = m.pop()
  const module = m.pop()
  if (typeof name !== 'string' || typeof module !== 'string') return m.fail('a module and a name', 'something else')
  m.global(module, name)
})
op('R', 'REDUCE', (m) => {
  const args = m.pop()
  const callee = m.pop()
  if (!(callee instanceof PyGlobal) || !Array.isArray(args)) return m.fail('a name and its arguments', kind(callee))
  if (callee.call === null) return m.refuse(`a call of ${callee.name}`)
  m.push(callee.call(args, m.fail))
})
op('b', 'BUILD', (m) => {
  const state = m.pop()
  const target = m.top()
  // PyTorch hangs `_metadata` on the OrderedDict of a state dict: versions of modules, no data.
  if (target instanceof Map) return
  if (!isBuildable(target)) return m.refuse(`a state for ${kind(target)}`)
  target.build(state, m.fail)
})
op('Q', 'BINPERSID', (m) => {
  const id = m.pop()
  if (!m.options.persistent) return m.refuse('a persistent id')
  m.push(m.options.persistent(id, m.fail))
})
op('P', 'PERSID', (m) => m.refuse(`the persistent id ${m.line().toString('latin1')}`))
op('i', 'INST', (m) => m.refuse(`${m.line().toString('latin1')}.${m.line().toString('latin1')}`))
op('o', 'OBJ', (m) => m.refuse('an object created by OBJ'))
op(0x81, 'NEWOBJ', (m) => {
  const args = m.pop()
  const made = m.pop()
  // only what the caller's list of names can make without running anything; the rest is refused as before
  if (!(made instanceof PyGlobal) || !made.call || !Array.isArray(args)) return m.refuse('an object created by NEWOBJ')
  m.push(made.call(args, m.fail))
})
op(0x92, 'NEWOBJ_EX', (m) => m.refuse('an object created by NEWOBJ_EX'))
op(0x82, 'EXT1', (m) => m.refuse('an extension code'))
op(0x83, 'EXT2', (m) => m.refuse('an extension code'))
op(0x84, 'EXT4', (m) => m.refuse('an extension code'))
op(0x97, 'NEXT_BUFFER', (m) => m.refuse('an out-of-band buffer'))
op(0x98, 'READONLY_BUFFER', (m) => m.refuse('an out-of-band buffer'))

function isBuildable(value: unknown): value is Buildable {
  return typeof value === 'object' && value !== null && 'build' in value && typeof value.build === 'function'
}
