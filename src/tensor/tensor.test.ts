import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test from 'node:test'
import type { TypedArray } from './dtype.ts'
import {
  type DType,
  full,
  Generator,
  int64Tensor,
  itemBytes,
  MappedFile,
  memory,
  ones,
  setThreads,
  type Tensor,
  tensor,
  threads,
  tidy,
  typedArray,
  zeros,
} from './index.ts'

/** Values at the edges of each dtype, as its typed array has them; 16-bit floats as raw bits. */
const edges: Record<DType, TypedArray> = {
  float32: Float32Array.of(0, -0, 1.5, -3.4028234663852886e38, 1e-45, Number.NaN, Number.POSITIVE_INFINITY),
  float64: Float64Array.of(0, -0, Math.PI, 5e-324, 1.7976931348623157e308, Number.NaN, Number.NEGATIVE_INFINITY),
  float16: Uint16Array.of(0x0000, 0x8000, 0x3c00, 0x7bff, 0x0001, 0x7e00, 0x7c00), // 0 -0 1 65504 2^-24 NaN Inf
  bfloat16: Uint16Array.of(0x0000, 0x8000, 0x3f80, 0x7f7f, 0x0001, 0x7fc0, 0xff80),
  int64: BigInt64Array.of(0n, -1n, 2n ** 53n + 1n, -(2n ** 63n), 2n ** 63n - 1n),
  int32: Int32Array.of(0, -1, 2147483647, -2147483648),
  int16: Int16Array.of(0, -1, 32767, -32768),
  int8: Int8Array.of(0, -1, 127, -128),
  uint8: Uint8Array.of(0, 1, 255),
  bool: Uint8Array.of(0, 1, 1),
}
const dtypes = Object.keys(edges) as DType[]
const bytesOf = (a: TypedArray) => new Uint8Array(a.buffer, a.byteOffset, a.byteLength)

for (const dtype of dtypes)
  test(`${dtype} goes through libtorch bit for bit, whole, reshaped and transposed`, () => {
    tidy(() => {
      const data = edges[dtype]
      const t = tensor(data, [1, data.length], { dtype })
      assert.equal(t.dtype, dtype)
      assert.deepEqual(bytesOf(t.array()), bytesOf(data))
      assert.equal(t.array().constructor, data.constructor)
      assert.deepEqual(bytesOf(t.t().t().clone().array()), bytesOf(data))
      assert.equal(tensor(typedArray(dtype, 0), [0, 3], { dtype }).array().length, 0)
    })
  })

test('a typed array that is a window of a larger buffer is read from its own offset', () => {
  tidy(() => {
    const whole = Float32Array.of(9, 1, 2, 9)
    for (const dtype of ['float32', 'bfloat16', 'int64'] as const) {
      const t = tensor(whole.subarray(1, 3), [2], { dtype })
      whole.fill(9)
      assert.deepEqual([t.dtype, t.numbers()], [dtype, [1, 2]])
      whole.set([1, 2], 1)
    }
  })
})

test('the array given out is a copy: later changes on either side stay there', () => {
  tidy(() => {
    const source = Float32Array.of(1, 2)
    const t = tensor(source)
    source[0] = 99
    const out = t.array()
    t.add_(1)
    assert.deepEqual([...out], [1, 2])
    out[1] = 77
    assert.deepEqual(t.numbers(), [2, 3])
  })
})

test('int64 beyond 2^53 is refused as a number and survives as bigint', () => {
  tidy(() => {
    const big = 2n ** 60n + 7n
    assert.equal(tensor(BigInt64Array.of(big)).add(1).array()[0], big + 1n)
    assert.throws(() => tensor([1.5], { dtype: 'int64' }), /expected integers for int64, got 1.5/)
    assert.throws(() => full([1], big as unknown as number), /fill_value: expected an integer, got 1152921504606846983/)
  })
})

test('int64Tensor takes numbers of a list and of an Int32Array alike, negative ones too', () => {
  const values = [-1, 0, 1, 2 ** 31 - 1, -(2 ** 31), -65_536]
  tidy(() => {
    for (const given of [values, Int32Array.from(values)]) {
      const made = int64Tensor(given, [2, 3])
      assert.deepEqual([made.dtype, made.shape, made.numbers()], ['int64', [2, 3], values])
    }
  })
})

test('bfloat16 and float16 created from numbers are rounded to nearest even', () => {
  tidy(() => {
    const values = [1, 1 + 2 ** -8, 1 + 3 * 2 ** -8, -2.5]
    assert.deepEqual([...tensor(values, { dtype: 'bfloat16' }).array()], [0x3f80, 0x3f80, 0x3f82, 0xc020])
    assert.deepEqual([...tensor([1 + 2 ** -11, 65520], { dtype: 'float16' }).array()], [0x3c00, 0x7c00])
    assert.deepEqual(tensor(values, { dtype: 'bfloat16' }).numbers(), [1, 1, 1 + 2 ** -6, -2.5])
  })
})

test('tensor() takes numbers, nestings and typed arrays, and says what does not fit', () => {
  tidy(() => {
    assert.deepEqual([...tensor(3).shape], [])
    assert.equal(tensor(true).dtype, 'bool')
    assert.deepEqual(
      [
        ...tensor([
          [1, 2, 3],
          [4, 5, 6],
        ]).shape,
      ],
      [2, 3],
    )
    assert.deepEqual([...tensor([[], []]).shape], [2, 0])
    assert.deepEqual(tensor([1, 2, 3, 4], [2, 2]).select(0, 1).numbers(), [3, 4])
    assert.equal(tensor(Int32Array.of(1), [1], { dtype: 'float64' }).dtype, 'float64')
    assert.throws(() => tensor([[1, 2], [3]]), /rows of equal length/)
    assert.throws(() => tensor([[1], 2]), /rows of equal length/)
    assert.throws(() => tensor([1, 2, 3], [2, 2]), /shape: expected 3 elements, got \[2,2\]/)
    assert.throws(() => tensor([1, 2], [-2]), /whole numbers from 0, got -2/)
    assert.throws(() => tensor(Uint16Array.of(1)), /expected bfloat16 or float16 for a Uint16Array, got none/)
  })
})

test('facts of a tensor: shape, size, dtype, device, numel', () => {
  tidy(() => {
    const t = zeros([2, 3], { dtype: 'int32' })
    assert.deepEqual([t.ndim, t.numel, t.size(-1), t.device, t.dtype], [2, 6, 3, 'cpu', 'int32'])
    assert.throws(() => t.size(2), /dim: expected inside \[2,3\], got 2/)
    assert.throws(() => t.item(), /needs a tensor of one element, got shape \[2, 3\]/)
    assert.equal(zeros([5], { device: 'meta' }).device, 'meta')
    assert.equal(String(t), 'Tensor(int32 [2,3])')
  })
})

test('item reads every dtype', () => {
  tidy(() => {
    for (const dtype of dtypes) assert.equal(ones([1], { dtype }).item(), 1, dtype)
  })
})

test('a generator repeats its numbers from a stored state, on its own', () => {
  tidy(() => {
    const g = new Generator(3)
    const draw = () => zeros([4]).normal_({ generator: g }).numbers()
    const state = g.state()
    const first = draw()
    assert.notDeepEqual(draw(), first)
    g.restore(state)
    assert.deepEqual(draw(), first)
    assert.deepEqual(
      zeros([4])
        .normal_({ generator: new Generator(3) })
        .numbers(),
      first,
    )
    assert.throws(() => g.restore(zeros([3])), { code: 'ERR_TORCH' })
  })
})

test('threads can be set and read back', () => {
  const was = threads()
  setThreads(2)
  assert.equal(threads(), 2)
  setThreads(was)
  assert.throws(() => setThreads(0), /expected at least 1, got 0/)
})

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-map-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))

test('a mapped file gives every dtype back, aligned or not, and stays valid after close', () => {
  tidy(() => {
    for (const dtype of dtypes) {
      const data = edges[dtype]
      const path = join(folder, dtype)
      writeFileSync(path, Buffer.concat([Buffer.alloc(16), bytesOf(data), Buffer.from([7]), bytesOf(data)]))
      const file = new MappedFile(path)
      assert.equal(file.size, 17 + 2 * data.byteLength)
      const aligned = file.tensor(16, [data.length], dtype)
      const odd = file.tensor(17 + data.byteLength, [data.length], dtype)
      file.close()
      assert.deepEqual(bytesOf(aligned.array()), bytesOf(data), dtype)
      assert.deepEqual(bytesOf(odd.array()), bytesOf(data), dtype)
      assert.equal(data.byteLength, data.length * itemBytes[dtype])
    }
  })
})

test('writing to a mapped tensor never reaches the file, and costs no heap', () => {
  tidy(() => {
    const path = join(folder, 'private')
    writeFileSync(path, bytesOf(new Float32Array(1024).fill(2)))
    const before = memory().bytes
    const t = new MappedFile(path).tensor(0, [1024], 'float32')
    assert.equal(memory().bytes, before)
    t.add_(1)
    assert.equal(t.sum().item(), 3 * 1024)
    assert.equal(new MappedFile(path).tensor(0, [1024], 'float32').sum().item(), 2 * 1024)
  })
})

test('a truncated, missing, empty or closed file is an error that says so', () => {
  tidy(() => {
    const path = join(folder, 'short')
    writeFileSync(path, Buffer.alloc(100))
    truncateSync(path, 10)
    const file = new MappedFile(path)
    const read = (offset: number, shape: number[], dtype: DType = 'float32'): Tensor =>
      file.tensor(offset, shape, dtype)
    assert.throws(() => read(0, [3]), /shape \[3\] is larger than the file|ends at byte 12, the file at 10/)
    assert.throws(() => read(8, [1]), /ends at byte 12, the file at 10/)
    assert.throws(() => read(-4, [1]), /the tensor ends at byte 0, the file at 10/)
    assert.throws(() => read(0, [2 ** 40, 2 ** 40], 'float64'), /larger than the file/)
    assert.throws(() => read(0, [-1]), /negative size/)
    assert.deepEqual(read(8, [1, 0, 4]).numbers(), [])
    file.close()
    assert.throws(() => read(0, [1]), /the mapping is closed/)
    assert.throws(() => new MappedFile(join(folder, 'nowhere')), /cannot open .*nowhere: No such file/)
    assert.throws(() => new MappedFile(folder), /is not a regular file/)
    writeFileSync(join(folder, 'empty'), '')
    assert.equal(new MappedFile(join(folder, 'empty')).size, 0)
  })
})

test('a generator that is freed gives its number to the next, and is not found any more', () => {
  const first = new Generator(1)
  const second = new Generator(2)
  first.dispose()
  assert.throws(() => first.seed(3), /unknown generator/)
  const third = new Generator(4)
  assert.equal(third.generator, first.generator)
  assert.notEqual(third.generator, second.generator)
  second.dispose()
  third.dispose()
})
