import assert from 'node:assert/strict'
import { test } from 'node:test'
import { keep, memory, type Tensor } from '../../../tensor/index.ts'
import { CacheMemory, type CacheUser, cacheSpare } from './cache-memory.ts'

const placement = { device: 'cpu', dtype: 'bfloat16' } as const

/** Has a view of the memory and a recording bound to it, as a decode state does. */
class User implements CacheUser {
  busy = false
  view: Tensor | null = null
  recordings = 0
  readonly #memory: CacheMemory
  readonly #elements: number

  constructor(memory: CacheMemory, elements: number) {
    this.#memory = memory
    this.#elements = elements
    memory.join(this)
  }

  decode(): Tensor {
    const whole = this.#memory.get(this.#elements)
    if (!this.view) {
      this.view = keep(whole.narrow(0, 0, this.#elements))
      this.recordings++
    }
    return whole
  }

  unbind(): void {
    this.view?.dispose()
    this.view = null
  }

  leave(): void {
    this.unbind()
    this.#memory.leave(this)
  }
}

test('users of different sizes have one memory, and stay bound to it while it is large enough', () => {
  const before = memory().tensors
  const shared = new CacheMemory(placement)
  const [large, small] = [new User(shared, 1000), new User(shared, 300)]
  const place = large.decode()
  for (let i = 0; i < 3; i++) for (const user of [small, large]) assert.equal(user.decode(), place)
  assert.deepEqual([large.recordings, small.recordings, shared.users], [1, 1, 2])
  assert.ok(shared.bytes >= 2000 && shared.bytes < 2 * 1300, `${shared.bytes} bytes`)
  small.leave()
  assert.equal(large.decode(), place, 'it stays for the other')
  large.leave()
  assert.deepEqual([shared.bytes, memory().tensors], [0, before], 'it goes with its last user')
})

test('before a memory goes everybody gives up what points into it, and binds anew', () => {
  const before = memory().tensors
  const shared = new CacheMemory(placement)
  const [small, other, large] = [new User(shared, 300), new User(shared, 200), new User(shared, 1000)]
  const first = small.decode()
  other.decode()
  const second = large.decode()
  assert.deepEqual([small.view, other.view, first.alive, second.alive], [null, null, false, true])
  assert.equal(small.decode(), second)
  assert.deepEqual([small.recordings, other.recordings, large.recordings], [2, 1, 1])
  for (const user of [small, other, large]) user.leave()
  assert.equal(memory().tensors, before)
})

test('it is busy while one of its users is', () => {
  const shared = new CacheMemory(placement)
  const [one, two] = [new User(shared, 10), new User(shared, 10)]
  assert.equal(shared.busy, false)
  two.busy = true
  assert.equal(shared.busy, true)
  two.leave()
  assert.equal(shared.busy, false)
  one.leave()
})

test('prompts that are a little longer fit into a memory that was allocated for shorter ones', () => {
  const shared = new CacheMemory(placement)
  const [user, longer] = [new User(shared, 1000), new User(shared, 1000 * cacheSpare)]
  assert.ok(cacheSpare > 1.05, `${cacheSpare}`)
  const place = user.decode()
  assert.equal(longer.decode(), place)
  assert.equal(user.recordings, 1)
  for (const one of [user, longer]) one.leave()
})
