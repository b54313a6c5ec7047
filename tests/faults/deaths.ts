// The checkpoint writer is killed at every system call that changes the disk, or loses what it had not synced. Calls are counted at
// node:fs, so nothing in the writer knows about it.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import { newestValid, prune, sweep, writeCheckpoint } from '../../src/checkpoint/index.ts'

const names = ['mkdirSync', 'writeFileSync', 'openSync', 'writeSync', 'fsyncSync', 'renameSync', 'rmSync'] as const
type Call = { name: (typeof names)[number]; args: unknown[] }

class Dead extends Error {}

/** Runs the work with every changing call seen first; a `watch` that throws is a death: no later call does anything. */
function watched(work: () => void, watch: (call: Call) => void): void {
  const real = Object.fromEntries(names.map((name) => [name, fs[name]]))
  let dead = false
  let watching = true // calls during an inspection are not the writer's
  for (const name of names)
    Object.assign(fs, {
      [name]: (...args: unknown[]) => {
        if (dead) throw new Dead()
        if (watching && (name !== 'openSync' || args[1] !== 'r')) {
          watching = false
          try {
            watch({ name, args })
          } catch (error) {
            dead = true
            throw error
          } finally {
            watching = true
          }
        }
        return (real[name] as (...all: unknown[]) => unknown)(...args)
      },
    })
  syncBuiltinESMExports()
  try {
    work()
  } catch (error) {
    if (!(error instanceof Dead)) throw error
  } finally {
    Object.assign(fs, real)
    syncBuiltinESMExports()
  }
}

const files = (step: number) => ({ 'state.json': `{"step":${step}}`, 'ema/a.bin': new Uint8Array(3000).fill(step) })

/** Step 1 is there; 2 is written new, then over itself, then what is old is pruned. */
function life(dir: string): void {
  writeCheckpoint(dir, 2, files(2))
  writeCheckpoint(dir, 2, files(2))
  prune(dir, 1)
}

function fresh(dir: string): void {
  fs.rmSync(dir, { recursive: true, force: true })
  writeCheckpoint(dir, 1, files(1))
}

function assertWhole(dir: string, moment: string): void {
  const { checkpoint, invalid } = newestValid(dir)
  assert.ok(checkpoint, `${moment}: no whole checkpoint, ${JSON.stringify(invalid)}`)
}

export function eachDeath(folder: string): { calls: number; deaths: number } {
  const dir = join(folder, 'run')
  let calls = 0
  fresh(dir)
  watched(
    () => life(dir),
    () => void calls++,
  )
  for (let at = 0; at < calls; at++) {
    fresh(dir)
    let seen = 0
    let last = ''
    watched(
      () => life(dir),
      ({ name }) => {
        last = name
        if (seen++ === at) throw new Dead()
      },
    )
    assertWhole(dir, `dead before call ${at} (${last})`)
    sweep(dir)
    writeCheckpoint(dir, 3, files(3))
    assert.equal(newestValid(dir).checkpoint?.step, 3)
    assert.deepEqual(
      fs.readdirSync(dir).filter((name) => name.startsWith('.tmp')),
      [],
    )
  }
  return { calls, deaths: calls }
}

/** A file system of two layers: what is written, and what of it has reached the disk. */
class Disk {
  readonly #written = new Map<string, Buffer>()
  readonly #synced = new Map<string, Buffer>()

  write(path: string, bytes: Buffer): void {
    this.#written.set(path, bytes)
  }

  sync(path: string): void {
    const bytes = this.#written.get(path)
    if (bytes) this.#synced.set(path, bytes)
  }

  rename(from: string, to: string): void {
    for (const layer of [this.#written, this.#synced])
      for (const [path, bytes] of [...layer])
        if (path === from || path.startsWith(`${from}/`)) {
          layer.delete(path)
          layer.set(to + path.slice(from.length), bytes)
        }
  }

  remove(path: string): void {
    for (const layer of [this.#written, this.#synced])
      for (const name of [...layer.keys()]) if (name === path || name.startsWith(`${path}/`)) layer.delete(name)
  }

  /** After the power came back: names as they are, files without what was not synced. */
  restore(from: string, to: string): void {
    fs.rmSync(to, { recursive: true, force: true })
    fs.mkdirSync(to, { recursive: true })
    for (const path of this.#written.keys()) {
      const target = join(to, path.slice(from.length + 1))
      fs.mkdirSync(join(target, '..'), { recursive: true })
      fs.writeFileSync(target, this.#synced.get(path) ?? '')
    }
  }
}

/** For every prefix of what is done to the disk, in two runs of several checkpoints each: a whole checkpoint is left. */
export function eachPowerLoss(folder: string): number {
  const [dir, after] = [join(folder, 'run'), join(folder, 'after')]
  const disk = new Disk()
  const open = new Map<number, string>()
  let prefixes = 0
  let began = false
  const note = ({ name, args }: Call): void => {
    const path = String(args[0])
    if (name === 'writeFileSync') disk.write(path, Buffer.from(args[1] as string))
    if (name === 'renameSync') disk.rename(path, String(args[1]))
    if (name === 'rmSync') disk.remove(path)
    if (name === 'fsyncSync') disk.sync(open.get(args[0] as number) ?? '')
    if (!began) return
    disk.restore(dir, after)
    assertWhole(after, `power lost after call ${prefixes} (${name})`)
    prefixes++
  }
  const realOpen = fs.openSync
  fs.mkdirSync(dir, { recursive: true })
  watched(() => {
    // reads of the writer are opened too: a sync says its file by its number
    const counted = fs.openSync
    fs.openSync = ((...args: Parameters<typeof realOpen>) => {
      const fd = counted(...args)
      open.set(fd, String(args[0]))
      return fd
    }) as typeof realOpen
    syncBuiltinESMExports()
    writeCheckpoint(dir, 1, files(1))
    began = true
    for (let step = 2; prefixes < 200; step++) {
      writeCheckpoint(dir, step, files(step))
      if (step % 2 === 0) writeCheckpoint(dir, step, files(step))
      prune(dir, 2)
    }
  }, note)
  return prefixes
}
