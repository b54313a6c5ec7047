import { join } from 'node:path'
import { Command } from 'commander'
import { atomicWrite, humanBytes, log, Mismatch } from '../core/index.ts'
import type { Behaviour } from '../tracking/index.ts'
import { requireOutput } from './output-file.ts'
import { aligned, clip } from './table.ts'

interface Options {
  out?: string
  behaviour?: boolean
  json?: boolean
}

/** `roundtrip report RUN`: the run as one HTML page; prints where it is. With --behaviour, a table in the terminal instead. */
export function command(): Command {
  return new Command('report')
    .description(
      'write one self-contained HTML page about a run: evaluation, behaviour, curves, rollouts with their masks',
    )
    .argument('<run>', 'run folder')
    .option('--out <page>', 'where to write the page (default: report.html in the run folder)')
    .option('--behaviour', 'print alarms and behaviour of the first steps against the last ones; no page')
    .option('--json', 'with --behaviour: print one JSON object')
    .action((folder: string, options: Options) =>
      options.behaviour ? printBehaviour(folder, options) : write(folder, options),
    )
}

async function write(folder: string, { out, json }: Options): Promise<void> {
  if (json) throw new Mismatch({ where: 'flags', field: '--json', expected: '--behaviour beside it', got: 'none' })
  if (out !== undefined) requireOutput(out, '.html')
  const { readRun } = await import('../tracking/index.ts')
  const { renderReport } = await import('../dashboard/index.ts')
  const page = await renderReport(readRun(folder))
  const path = out ?? join(folder, 'report.html')
  atomicWrite(path, page)
  log.info(`wrote ${humanBytes(Buffer.byteLength(page))}`)
  process.stdout.write(`${path}\n`)
}

async function printBehaviour(folder: string, { json, out }: Options): Promise<void> {
  if (out !== undefined)
    throw new Mismatch({ where: 'flags', field: '--out', expected: 'no --behaviour beside it', got: out })
  const { behaviourOf, followWhole } = await import('../tracking/index.ts')
  const behaviour = behaviourOf(followWhole(folder))
  const encoded = (_: string, value: unknown) => (Number.isNaN(value) ? null : value)
  process.stdout.write(json ? `${JSON.stringify(behaviour, encoded)}\n` : await behaviourText(behaviour))
}

async function behaviourText({ alarms, tasks, pairs }: Behaviour): Promise<string> {
  const { alarmText, valueText } = await import('../tracking/index.ts')
  const blocks = tasks.map(({ title, before, after, items, gained, lost }) => {
    const head = ['', `steps ${before.join('-')}`, `steps ${after.join('-')}`, 'records']
    const rows = items.map((item) => [
      ...[item.title, valueText(item.name, item.before), valueText(item.name, item.after)],
      clip(item.records.join(' '), 40),
    ])
    const words = [['words gained', gained] as const, ['words lost', lost] as const]
    const lines = words.map(([name, of]) => `${name}: ${of.map(({ word }) => word).join(', ') || 'none'}`)
    return [title, aligned([head, ...rows], { right: [1, 2] }), ...lines].join('\n')
  })
  const counts = pairs ? [`${pairs.wins} better, ${pairs.losses} worse, ${pairs.ties} equal: ${pairs.about}`] : []
  const moved = pairs ? [...pairs.best, ...pairs.worst] : []
  const changes = moved.map(({ id, before, after }) => [id, before.toFixed(3), after.toFixed(3)])
  const alarmed = alarms.map((alarm) => `alarm ${alarm.kind}, step ${alarm.step}: ${alarmText(alarm)}`)
  const listed = changes.length > 0 ? [aligned([['record', 'before', 'after'], ...changes], { right: [1, 2] })] : []
  return `${[...(alarmed.length > 0 ? alarmed : ['no alarm']), '', ...blocks.flatMap((b) => [b, '']), ...counts, ...listed].join('\n')}\n`
}
