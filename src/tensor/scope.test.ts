import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import test from 'node:test'
import {
  cat,
  expectNoLeak,
  gradEnabled,
  keep,
  memory,
  noGrad,
  ones,
  randn,
  type Tensor,
  tensor,
  tensorsIn,
  tidy,
  zeros,
} from './index.ts'

test('a scope frees what was created inside, except what it returns, however nested', () => {
  const before = memory()
  const kept = tidy(() => {
    const a = ones([4])
    const b = a.add(1)
    const c = b.mul(2)
    return { first: b, rest: [c, new Map([['m', a.sub(1)]]), new Set([a.add(7)])], text: 'x', none: null }
  })
  assert.equal(memory().tensors, before.tensors + 4)
  assert.deepEqual(kept.first.numbers(), [2, 2, 2, 2])
  const all = tensorsIn(kept)
  assert.deepEqual(
    all.map((t) => t.numbers()[0]),
    [2, 4, 0, 8],
  )
  for (const t of all) t.dispose()
  assert.equal(memory().bytes, before.bytes)
})

/** A value inside so many objects. */
const nested = (value: unknown, levels: number): unknown => (levels === 0 ? value : { in: nested(value, levels - 1) })

test('a tensor that is nested too deep to be kept is an error, not a freed tensor', () => {
  const before = memory().tensors
  const kept = tidy(() => nested(ones([2]), 7))
  assert.equal(tensorsIn(kept)[0]!.alive, true)
  tensorsIn(kept)[0]!.dispose()
  for (const levels of [8, 9, 40])
    assert.throws(() => tidy(() => nested([new Map([['m', ones([2])]])], levels - 2)), {
      message: `tidy: expected tensors at most 7 levels deep, got ${levels}. return the tensor in fewer nested objects`,
    })
  assert.deepEqual(
    tidy(() => nested('plain data', 50)),
    nested('plain data', 50),
  )
  assert.equal(memory().tensors, before)
})

test('objects that refer to each other are searched once', () => {
  const made = tidy(() => {
    const a: Record<string, unknown> = { t: ones([2]) }
    const b = { a, u: zeros([1]) }
    a.b = b
    return a as { t: Tensor; b: { u: Tensor } }
  })
  assert.ok(made.t.alive && made.b.u.alive)
  made.t.dispose()
  made.b.u.dispose()
})

test('what an inner scope returns is kept as long as the outer one', () => {
  const before = memory().tensors
  let inner: Tensor | undefined
  tidy(() => {
    inner = tidy(() => ones([2]).add(1))
    assert.ok(inner.alive)
    assert.equal(memory().tensors, before + 1)
  })
  assert.equal(inner!.alive, false)
  assert.equal(memory().tensors, before)
})

test('a scope frees also when its function throws, and the scopes around it stay', () => {
  const before = memory()
  tidy(() => {
    const outer = ones([3])
    assert.throws(
      () =>
        tidy(() => {
          zeros([100])
          throw new RangeError('inside')
        }),
      RangeError,
    )
    assert.equal(memory().tensors, before.tensors + 1)
    assert.deepEqual(outer.numbers(), [1, 1, 1])
  })
  assert.equal(memory().scopes, before.scopes)
})

test('keep takes a tensor out of every scope; dispose twice is silent', () => {
  const before = memory().tensors
  const kept: Tensor[] = []
  tidy(() => tidy(() => void kept.push(keep(ones([2])), keep(zeros([1])))))
  assert.equal(memory().tensors, before + 2)
  for (const t of [...kept, ...kept]) t.dispose()
  assert.equal(memory().tensors, before)
})

test('a freed tensor throws wherever it is used, and never crashes', () => {
  tidy(() => {
    const gone = ones([2, 2])
    const alive = ones([2, 2])
    gone.dispose()
    const uses: (() => unknown)[] = [
      () => gone.add(1),
      () => alive.add(gone),
      () => cat([alive, gone]),
      () => alive.index([gone]),
      () => gone.item(),
      () => gone.array(),
      () => gone.requiresGrad_(),
      () => gone.requiresGrad,
      () => gone.grad(),
      () => alive.setGrad(gone),
      () => gone.shape,
      () => gone.alias(),
      () => keep(gone),
      () => alive.layerNorm([2], { weight: gone }),
    ]
    for (const use of uses) assert.throws(use, { code: 'ERR_TENSOR_DISPOSED' }, String(use))
    assert.throws(() => alive.add(gone), /aten::add.Tensor[\s\S]*self=Float\[2, 2\], other=<freed>/)
    assert.equal(String(gone), 'Tensor(freed)')
    assert.deepEqual(alive.add(1).numbers(), [2, 2, 2, 2])
  })
})

test('a handle whose slot was reused is still seen as freed', () => {
  tidy(() => {
    const old = ones([1])
    old.dispose()
    const fresh = Array.from({ length: 50 }, () => zeros([1]))
    assert.throws(() => old.item(), { code: 'ERR_TENSOR_DISPOSED' })
    assert.ok(fresh.every((t) => t.alive))
  })
})

test('10,000 random ops in scopes: bytes return to the start, slots stay bounded', () => {
  const a = keep(randn([8, 8]))
  const before = memory()
  for (let i = 0; i < 1000; i++)
    tidy(() => {
      let x = a
      for (let k = 0; k < 10; k++)
        x = [
          () => x.add(a),
          () => x.matmul(a),
          () => cat([x, a]).slice({ end: 8 }),
          () => x.view([4, 16]).reshape([8, 8]),
        ][(i * 7 + k * 3) % 4]!()
      return x.sum().item()
    })
  const after = memory()
  assert.equal(after.bytes, before.bytes)
  assert.equal(after.tensors, before.tensors)
  assert.ok(after.slots < 5000, `${after.slots} slots`)
  assert.ok(after.created - before.created >= 10_000)
  a.dispose()
})

test('an async function in a scope is refused, and the scope is closed', () => {
  const before = memory().scopes
  // @ts-expect-error async functions do not compile here
  assert.throws(() => tidy(async () => 1), /a synchronous function/)
  assert.equal(memory().scopes, before)
})

test('expectNoLeak passes clean work and counts what stayed', () => {
  assert.equal(
    expectNoLeak(() => tidy(() => ones([3]).sum().item())),
    3,
  )
  const leaked: Tensor[] = []
  assert.throws(
    () => expectNoLeak(() => void leaked.push(keep(ones([2, 5])))),
    /1 tensors leaked:\n {2}Tensor\(float32 \[2,5\]\)/,
  )
  for (const t of leaked) t.dispose()
})

test('in debug mode a leaked tensor is reported with the line that created it', () => {
  const door = new URL(import.meta.url.endsWith('.ts') ? './index.ts' : './index.js', import.meta.url).href
  const source = `
    import { expectNoLeak, keep, liveTensors, ones, tidy } from ${JSON.stringify(door)}
    function forgetful() {
      return keep(ones([3]).mul(2))
    }
    tidy(() => void ones([2]))
    try { expectNoLeak(() => tidy(() => void forgetful())) } catch (error) { console.log(error.message) }
    console.log(liveTensors().map((l) => l.madeAt).join())`
  const loader = import.meta.url.endsWith('.ts') ? ['--import', 'tsx'] : []
  const { stdout, stderr } = spawnSync(process.execPath, [...loader, '--input-type=module', '-e', source], {
    encoding: 'utf8',
    env: { ...process.env, ROUNDTRIP_DEBUG: 'tensors' },
  })
  assert.match(stdout, /1 tensors leaked:\n.*float32 \[3\]\) created at forgetful \(.*:4:/, stderr)
  assert.match(stdout, /\nforgetful \(/)
})

test('grad mode is per flow: an error inside noGrad inside a scope restores both', () => {
  const before = memory().scopes
  assert.throws(() => tidy(() => noGrad(() => void tensor([1]).matmul(tensor([1, 2, 3])))))
  assert.equal(gradEnabled(), true)
  assert.equal(memory().scopes, before)
})

test('the place of a freed tensor waits: thousands of others are created before a handle differs by its generation alone', () => {
  tidy(() => {
    const place = (t: Tensor) => t.handle % 2 ** 32
    const first = tensor([1])
    first.dispose()
    const places = Array.from({ length: 4000 }, () => {
      const t = tensor([2])
      t.dispose()
      return place(t)
    })
    assert.ok(!places.includes(place(first)))
    assert.equal(new Set(places).size, places.length)
  })
})
