import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fixture, refuses, survives } from '../../tests/support/checkpoint.ts'
import { withinMinute } from '../../tests/support/in-time.ts'
import { stream } from '../core/index.ts'
import { NumpyArray } from './numpy.ts'
import { readPickle } from './pickle.ts'

const expected = JSON.parse(readFileSync(fixture('expected.json'), 'utf8'))
const read = (name: string) => readPickle(readFileSync(fixture(name)), name)
const ascii = (text: string) => readPickle(Buffer.from(text, 'latin1'))

for (const name of ['0', '1', '2', '3', '4', '5', 'python2.0', 'python2.2']) {
  test(`a list of records written by Python with protocol ${name} reads as the same data`, () => {
    assert.deepEqual(read(`refs.${name}.p`), expected.refs)
  })
}

for (const protocol of [2, 4, 5]) {
  test(`bytes, sets, ordered dicts, big numbers and numpy values read from protocol ${protocol}`, () => {
    const value = read(`values.${protocol}.p`) as Record<string, unknown>
    assert.equal(value['big'], 2n ** 70n)
    assert.deepEqual(new Uint8Array(value['bytes'] as Uint8Array), new Uint8Array([0, 1, 255]))
    assert.deepEqual(new Uint8Array(value['bytearray'] as Uint8Array), new Uint8Array([97, 98]))
    assert.deepEqual([value['set'], value['frozenset']], [[5], [6]])
    assert.deepEqual(Object.entries(value['ordered'] as object), [
      ['b', 1],
      ['a', 2],
    ])
    assert.deepEqual([value['scalar'], value['int']], [0.25, -7])
    const array = value['array'] as NumpyArray
    assert.ok(array instanceof NumpyArray)
    assert.deepEqual([array.dtype, array.shape, array.values()], ['i4', [2, 3], [0, 1, 2, 3, 4, 5]])
    assert.deepEqual((value['bools'] as NumpyArray).values(), [true, false])
    assert.deepEqual(
      value['keys'],
      new Map([
        [1, 'one'],
        [2, 'two'],
      ]),
    )
    assert.deepEqual(Object.getOwnPropertyDescriptor(value, '__proto__')?.value, { x: 1 })
  })
}

test("Python 2's text is UTF-8 where it can be, else Latin-1; its escapes and longs are read", () => {
  assert.equal(ascii("S'caf\\xc3\\xa9'\n."), 'café')
  assert.equal(ascii('U\x04caf\xe9.'), 'café')
  assert.equal(ascii("S'a\\n\\t\\\\\\'\\\"\\101\\q'\n."), 'a\n\t\\\'"A\\q')
  assert.equal(ascii('S"it\'s"\n.'), "it's")
  assert.equal(ascii('V\\u2603 \\U0001f600\n.'), '\u2603 \u{1f600}')
  assert.deepEqual(ascii('(I01\nI00\nL-12L\nF1.5e3\nFinf\nt.'), [true, false, -12, 1500, Infinity])
})

test('whatever could run code is refused with its name and place', () => {
  refuses(() => ascii("cos\nsystem\n(S'true'\ntR."), /GLOBAL at byte 0: expected plain data or tensors, got os\.system/)
  refuses(() => ascii('\x80\x04\x8c\x08builtins\x8c\x04eval\x93.'), /STACK_GLOBAL at byte 18: .*builtins\.eval/)
  refuses(() => ascii("(S'x'\nios\nsystem\n."), /INST at byte 6: .*os\.system/)
  refuses(() => ascii('(o.'), /OBJ/)
  refuses(() => ascii('N)\x81.'), /NEWOBJ/)
  refuses(() => ascii('\x82\x01.'), /EXT1/)
  refuses(() => ascii('Pabc\n.'), /persistent id abc/)
  refuses(() => ascii('NQ.'), /persistent id/)
  refuses(() => ascii(']}b.'), /BUILD/)
  refuses(() => ascii('cnumpy\nndarray\n)R.'), /a call of numpy\.ndarray/)
  refuses(() => ascii("cnumpy\ndtype\n(S'O8'\ntR."), /REDUCE at byte .*a numpy dtype of b1 .*, got O8/)
  refuses(() => ascii("c_codecs\nencode\n(S'x'\nS'rot13'\ntR."), /latin1/)
})

test('broken pickles are refused where they break', () => {
  refuses(() => ascii(''), /at byte 0: expected 1 more byte/)
  refuses(() => ascii('.'), /a value on the stack/)
  refuses(() => ascii('N'), /byte 1/)
  refuses(() => ascii('N.N'), /expected the end of the file, got 1 more bytes/)
  refuses(() => ascii('(N0a.'), /a value on the stack/)
  refuses(() => ascii('t.'), /a mark on the stack/)
  refuses(() => ascii('h\x05.'), /BINGET at byte 0: expected a memo entry that exists, got 5/)
  refuses(() => ascii('X\xff\xff\xff\xffab.'), /expected 4294967295 more bytes/)
  refuses(() => ascii('\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.'), /a length inside the file/)
  refuses(() => ascii('X\x01\x00\x00\x00\xff.'), /UTF-8/)
  refuses(() => ascii('N(Ns.'), /stack/)
  refuses(() => ascii('}(Nu.'), /keys and values in pairs/)
  refuses(() => ascii('}Na.'), /a list to append to/)
  refuses(() => ascii('Iabc\n.'), /a whole number, got abc/)
  refuses(() => ascii(`I${'9'.repeat(100_000)}\n.`), /a whole number/)
  refuses(() => ascii('\x8b\xff\xff\xff\x7f.'), /at most 4096 bytes/)
  refuses(() => ascii('\x80\x09.'), /protocol 0 to 5, got 9/)
  refuses(() => ascii('\x99.'), /a pickle opcode, got 0x99/)
  refuses(() => ascii('V\\Uffffffff\n.'), /code point/)
})

test('a very long number that is none is refused in one pass over it', () => {
  const digits = '1'.repeat(1_000_000) // an hour if each of its places were a start
  const what = /FLOAT at byte 0: expected a number, got 1{40}$/
  refuses(() => withinMinute(() => ascii(`F${digits}x\n.`)), what)
  refuses(() => withinMinute(() => ascii(`F${digits}.${digits}e\n.`)), what)
  for (const text of ['7', '-7.', '.5', '+1.25e-2', '1E3']) assert.equal(ascii(`F${text}\n.`), Number(text))
})

test('memo entries are found again whatever order their numbers come in', () => {
  assert.deepEqual(ascii('(K\x07q\x010K\x08q\x000h\x01h\x00t.'), [7, 8])
  assert.deepEqual(ascii('(K\x07q\x010K\x08q\x000K\x09q\x010h\x01h\x00t.'), [9, 8])
  assert.deepEqual(ascii('(K\x07r\xff\xff\xff\xff0K\x08p12\n0j\xff\xff\xff\xffg12\nt.'), [7, 8])
})

test('nesting is bounded, a value may not contain itself, and shared parts stay shared', () => {
  const nested = (n: number) => `${']'.repeat(n)}${'a'.repeat(n - 1)}.`
  assert.ok(Array.isArray(ascii(nested(1000))))
  refuses(() => ascii(nested(1001)), /nesting of at most 1000 levels/)
  refuses(() => ascii(nested(100_000)), /nesting/)
  refuses(() => ascii(']q\x00h\x00a.'), /contains itself/)
  // 200 doublings: 2^200 leaves if unfolded.
  const doubled = ascii(`]${'2\x86'.repeat(200)}.`) as unknown[]
  assert.equal(doubled[0], doubled[1])
  refuses(() => ascii(`]${'2\x86'.repeat(1001)}.`), /nesting/)
})

test('10,000 random and damaged byte strings give a value or a Mismatch, never another error', () => {
  const random = stream('pickle fuzz')
  const seeds = readdirSync(fixture(''))
    .filter((name) => name.endsWith('.p'))
    .map((name) => readFileSync(fixture(name)))
  const codes = [
    ...Buffer.from(
      '().0123FIJKLMNSTUVXBCabcdeghijlopqrstu}]RQP\n\x80\x85\x86\x87\x88\x8a\x8c\x8f\x90\x93\x94',
      'latin1',
    ),
  ]
  let read = 0
  for (let i = 0; i < 10_000; i++) {
    const bytes = i % 2 === 0 ? Buffer.from(random.pick(seeds)) : Buffer.alloc(1 + random.below(60))
    if (i % 2 === 0) for (let n = 1 + random.below(6); n > 0; n--) bytes[random.below(bytes.length)] = random.below(256)
    else
      for (let k = 0; k < bytes.length; k++) bytes[k] = random.below(8) === 0 ? random.below(256) : random.pick(codes)
    if (survives(() => readPickle(bytes))) read++
  }
  assert.ok(read > 50, `${read} were readable`)
})
