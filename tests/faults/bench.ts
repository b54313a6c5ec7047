// What the rows share: one toy model, one run that nothing disturbed, a folder that goes away.
import assert from 'node:assert/strict'
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { sha256 } from '../../src/core/index.ts'
import { type Host, type RunInput, type RunResult, train } from '../../src/run/index.ts'
import { type Started, start } from '../e2e/cli.ts'
import { hostOf, makeToy, runBytes, scratch, toyRun } from '../support/runs.ts'

const small = { batchSize: 1, maxSteps: 4, saveTotalLimit: 9, rl: { numGenerations: 2, maxCompletionLength: 5 } }

export class Bench {
  readonly folder = scratch('faults')
  #calm: Promise<string> | undefined
  /** A row may wait for what never comes; the process must outlive it. */
  readonly #awake = setInterval(() => undefined, 1000)

  /** A separate path for a row. */
  at(name: string): string {
    return join(this.folder, name)
  }

  /** A Sa2VA of a few hundred kilobytes. */
  get toy(): string {
    const path = this.at('toy')
    return existsSync(path) ? path : makeToy(path)
  }

  /** Four steps of the toy in this process. */
  train(output: string, input: Partial<RunInput> = {}, host: Host = hostOf(), model = this.toy): Promise<RunResult> {
    return train(toyRun(model, this.at(output), { ...small, ...input, rl: { ...small.rl, ...input.rl } }), host)
  }

  /** The folder of four steps that nothing disturbed; not to be written. */
  calm(): Promise<string> {
    this.#calm ??= this.train('calm').then(() => this.at('calm'))
    return this.#calm
  }

  /** A copy of the calm run in which steps after `step` have not happened. */
  async calmUntil(output: string, step: number): Promise<string> {
    const path = this.at(output)
    cpSync(await this.calm(), path, { recursive: true })
    for (let after = step + 1; after <= 4; after++)
      rmSync(join(path, `checkpoint_step_${after}`), { recursive: true, force: true })
    return path
  }

  /** Resumes the run and compares what the seed decides with the calm run. */
  async assertExact(output: string): Promise<void> {
    await this.train(output)
    assert.deepEqual(runBytes(this.at(output)), runBytes(await this.calm()), 'bytes of the calm run')
  }

  /** `train` as a user types it, on the toy. */
  command(output: string, ...more: string[]): string[] {
    const settings =
      '--dataPath scenes:24 --data.workers 0 --evalRecords 0 --saveSteps 0 --batchSize 1 --rl.numGenerations 2 ' +
      '--rl.maxCompletionLength 5 --lora.rank 4 --lora.alpha 8 --optim.lrSchedulerType constant'
    return ['train', '--model', this.toy, ...settings.split(' '), '--output', this.at(output), ...more]
  }

  start(output: string, ...more: string[]): Started {
    return start(...this.command(output, ...more))
  }

  events(output: string): { t: string; step: number; [key: string]: unknown }[] {
    const text = readFileSync(join(this.at(output), 'events.jsonl'), 'utf8').trim()
    return text.split('\n').map((line) => JSON.parse(line))
  }

  close(): void {
    clearInterval(this.#awake)
    rmSync(this.folder, { recursive: true, force: true })
  }
}

/** Waits for a state of a run that is under way; a run that ends before is a failure. */
export async function reached(run: Started, there: () => boolean): Promise<void> {
  let ended: string | undefined
  void run.ended.then(({ err }) => {
    ended = err
  })
  while (!there()) {
    assert.ok(ended === undefined, `the run ended: ${ended?.slice(-300)}`)
    await sleep(5)
  }
}

/** Changes a file of a checkpoint and its hash in the manifest: damage that only the content shows. */
export function rewrite(checkpoint: string, name: string, change: (bytes: Buffer) => Buffer | string): void {
  const bytes = Buffer.from(change(readFileSync(join(checkpoint, name))))
  writeFileSync(join(checkpoint, name), bytes)
  const path = join(checkpoint, 'manifest.json')
  const manifest = JSON.parse(readFileSync(path, 'utf8')) as { files: Record<string, unknown> }
  manifest.files[name] = { size: bytes.length, sha256: sha256(bytes) }
  writeFileSync(path, JSON.stringify(manifest))
}

/** The message of what must be refused. */
export async function refusal(work: () => unknown, pattern: RegExp): Promise<string> {
  let message: string | undefined
  try {
    await work()
  } catch (error) {
    message = (error as Error).message
  }
  assert.ok(message !== undefined, `expected a refusal like ${pattern}, got none`)
  assert.match(message, pattern)
  return message
}

type Clock = { now(): number }

/** Runs with clocks that the work may set so many milliseconds off: that of the wall unless others are given. */
export async function withClock<T>(
  work: (setOff: (ms: number) => void) => Promise<T>,
  clocks: readonly Clock[] = [Date],
): Promise<T> {
  let off = 0
  const real = clocks.map((clock) => clock.now)
  clocks.forEach((clock, i) => {
    clock.now = () => real[i]!.call(clock) + off
  })
  try {
    return await work((ms) => {
      off = ms
    })
  } finally {
    clocks.forEach((clock, i) => {
      clock.now = real[i]!
    })
  }
}
