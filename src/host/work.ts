// What runs in the engine thread: plain input and the port to the main thread in, plain data out. Libraries of the engine are loaded there.
import { inWorld, type World } from '../distributed/index.ts'
import type { EnginePort } from '../engine/index.ts'
import type { EvaluateModelOptions, ModelSide, RunConfig, SftSettings } from '../run/index.ts'
import { portHost } from './hosted.ts'

export const module = import.meta.url

/** In the world that this process was started into. */
async function together<R>(config: RunConfig, work: (world: World) => Promise<R>): Promise<R> {
  const { commonFacts } = await import('../run/index.ts')
  const options = { backend: config.distributed.backend, collective: config.distTimeout }
  return inWorld(options, work, () => commonFacts(config))
}

export async function train(config: RunConfig, port: EnginePort) {
  const run = await import('../run/index.ts')
  return together(config, (world) => run.train(config, portHost(port), undefined, world))
}

export async function sft({ config, settings }: { config: RunConfig; settings: SftSettings }, port: EnginePort) {
  const run = await import('../run/index.ts')
  return together(config, (world) => run.sft(config, settings, portHost(port), world))
}

export async function evaluate(input: { config: RunConfig; options: EvaluateModelOptions }, port: EnginePort) {
  const run = await import('../run/index.ts')
  return run.evaluateModel(input.config, input.options, portHost(port))
}

export async function compare(sides: [ModelSide, ModelSide], port: EnginePort) {
  const run = await import('../run/index.ts')
  return run.compareModels(sides, portHost(port))
}

export async function doctor(config: RunConfig, port: EnginePort) {
  const run = await import('../run/index.ts')
  return run.doctor(config, portHost(port))
}

export async function dryRun({ config, processes }: { config: RunConfig; processes: number }, port: EnginePort) {
  const run = await import('../run/index.ts')
  return run.dryRun(config, portHost(port), processes)
}
