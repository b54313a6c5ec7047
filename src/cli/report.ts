import { Command } from 'commander'

/** `roundtrip report RUN`: the run as one HTML page; prints where it is. */
export function command(): Command {
  return new Command('report')
    .description('write one self-contained HTML page about a run: evaluation, curves, rollouts with their masks')
    .argument('<run>', 'run folder')
    .option('--out <page>', 'where to write the page (default: report.html in the run folder)')
    .action(async (folder: string, options: { out?: string }) => {
      const { join } = await import('node:path')
      const { atomicWrite, humanBytes, log } = await import('../core/index.ts')
      const { readRun } = await import('../tracking/index.ts')
      const { renderReport } = await import('../dashboard/index.ts')
      const page = await renderReport(readRun(folder))
      const path = options.out ?? join(folder, 'report.html')
      atomicWrite(path, page)
      log.info(`wrote ${humanBytes(Buffer.byteLength(page))}`)
      process.stdout.write(`${path}\n`)
    })
}
