import { availableParallelism } from 'node:os'
import { Command } from 'commander'
import { cacheFolder, humanBytes, messageOf } from '../core/index.ts'
import type { BuildRecord } from '../engine/index.ts'
import { aligned } from './table.ts'

export type EngineInfo = Awaited<ReturnType<typeof collect>>

/** `roundtrip info`: what the engine is made of on this machine. */
export function command(): Command {
  return new Command('info')
    .description('what runs the tensors here: torch, devices, threads, BLAS, build, cache')
    .option('--json', 'print one JSON object')
    .action(async (options: { json?: boolean }) => {
      const info = await collect()
      process.stdout.write(options.json ? `${JSON.stringify(info, null, 2)}\n` : `${render(info)}\n`)
    })
}

/** `build` is null before the set-up has run; `engine` if there is nothing to load, or loading failed: `problem` says why. */
async function collect() {
  const { buildRecord, native } = await import('../engine/index.ts')
  const record = process.env.ROUNDTRIP_ADDON ? null : buildRecord()
  const base = {
    node: process.version,
    platform: `${process.platform} ${process.arch}`,
    cpus: availableParallelism(),
    cache: cacheFolder(),
    build: record && pick(record),
  }
  try {
    const { cuda } = await import('../tensor/index.ts')
    const device = (i: number) => ({ name: cuda.name(i), totalBytes: cuda.memory(i).total })
    const devices = Array.from({ length: cuda.count() }, (_, i) => device(i))
    return { ...base, engine: { ...native().info(), threads: native().threads(), devices }, problem: null }
  } catch (error) {
    return { ...base, engine: null, problem: messageOf(error) }
  }
}

function pick({ addon, torchVersion, torchPath, kind, cuda, flags }: BuildRecord) {
  return { addon, torchVersion, torchPath, kind, cuda, flags }
}

function render(info: EngineInfo): string {
  const { engine, build } = info
  const rows: [string, string][] = [
    ['node', `${info.node} (${info.platform}, ${info.cpus} cores)`],
    ['cache', info.cache],
  ]
  if (engine) {
    const cards = engine.devices.map((d, i) => `cuda:${i} ${d.name} (${humanBytes(d.totalBytes)})`)
    rows.push(
      ['torch', build ? `${engine.version} at ${build.torchPath} (${build.kind})` : engine.version],
      ['devices', ['cpu', ...cards].join(', ')],
      ['threads', String(engine.threads)],
      ['BLAS', engine.blasCore ? `${engine.blas} (core type ${engine.blasCore})` : engine.blas],
      ['CPU kernels', engine.config.match(/CPU capability usage: (\S+)/)?.[1] ?? 'unknown'],
      ['CUDA', engine.cuda],
      ['compiler', engine.compiler],
    )
  }
  if (build) rows.push(['addon', build.addon], ['flags', build.flags.join(' ')])
  else rows.push(['addon', process.env.ROUNDTRIP_ADDON ?? 'not built yet: run `npx roundtrip-rl setup` once'])
  if (info.problem) rows.push(['problem', info.problem])
  return aligned(rows)
}
