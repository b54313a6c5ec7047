// A reader with every fault that the fuzzer must find, in turn: what proves the fuzzer. Not among the formats of the command.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Mismatch } from '../../../src/core/index.ts'
import type { Format } from '../format.ts'

export const faults = ['read', 'refused', 'raw', 'wrong', 'escape', 'memory', 'hang', 'crash', 'read'] as const

let next = Number(process.argv[4] ?? 0) // the first case of this process

async function fail(fault: (typeof faults)[number], folder: string): Promise<string> {
  if (fault === 'refused') throw new Mismatch({ where: folder, expected: 'another', got: 'this' })
  if (fault === 'raw') throw new TypeError('an internal error')
  if (fault === 'wrong') return 'other data'
  if (fault === 'escape') writeFileSync(join(folder, '..', 'outside', 'made'), '')
  if (fault === 'memory') return await grow()
  while (fault === 'hang');
  if (fault === 'crash') process.kill(process.pid, 'SIGSEGV')
  return 'data'
}

async function grow(): Promise<string> {
  const held: Buffer[] = []
  for (;;) {
    held.push(Buffer.alloc(64 * 1024 * 1024, 1))
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

export const planted: Format = {
  name: 'planted',
  async setup() {
    return () => ({ files: { a: '' }, note: '', expect: 'data' })
  },
  read: (folder) => fail(faults[next++] ?? 'read', folder),
}
