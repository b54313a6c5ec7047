// A run in the engine thread whose first round trip is sampled only once a file says that the judge was asked.
import { existsSync, writeFileSync } from 'node:fs'
import type { EnginePort } from '../../src/engine/index.ts'
import { portHost } from '../../src/host/index.ts'
import type { Task } from '../../src/rl/index.ts'
import { type RunConfig, train } from '../../src/run/index.ts'
import { taskKinds } from '../../src/tasks/index.ts'

/** Only a run that never asks reaches it. */
const limitMs = 25_000

function waitFor(path: string): void {
  const end = Date.now() + limitMs
  while (!existsSync(path)) {
    if (Date.now() > end) throw new Error('the judge is not asked before the other round trip is sampled')
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
  }
}

/** `asked`: the file; null: nothing waits. `learned`: written when the first round trip was learned from. */
export interface JudgedInput {
  config: RunConfig
  asked: string | null
  learned: string
}

export function judgedWork({ config, asked, learned }: JudgedInput, port: EnginePort) {
  const kind = taskKinds.cycle
  const { build } = kind
  Object.assign(kind, {
    build: (...args: Parameters<typeof build>) =>
      build(...args).map((task) => (task.name === 'loop1' ? waiting(task as Task) : task)),
  })
  const waiting = (task: Task): Task =>
    new Proxy(task, {
      get(target, key) {
        if (key === 'sample' && asked) waitFor(asked)
        if (key === 'metrics') return target.metrics
        const value = Reflect.get(target, key) as unknown
        if (key !== 'extraLoss') return typeof value === 'function' ? value.bind(target) : value
        return (...given: Parameters<NonNullable<Task['extraLoss']>>) => {
          writeFileSync(learned, '') // the loss that is computed with gradient
          return target.extraLoss?.(...given) ?? null
        }
      },
    })
  return train(config, portHost(port))
}
