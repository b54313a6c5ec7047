import type { Command } from 'commander'
import type { CommandFlag } from '../config/index.ts'
import type { EnginePort } from '../engine/index.ts'
import { portHost, requirePaths, runHosted } from '../host/index.ts'
import type { Finding, RunConfig } from '../run/index.ts'
import { requireRead } from './command-settings.ts'
import { readRunSettings, runCommand } from './settings.ts'
import { aligned } from './table.ts'

const flags: CommandFlag[] = [{ name: 'json', doc: 'print the findings as one JSON object' }]

const about =
  'Check a model before training: gradients reach every group, frozen weights stay, the image matters, the ratio is 1. Writes nothing.'

export function command(): Command {
  return runCommand('doctor', about, flags, run)
}

async function run(argv: readonly string[]): Promise<void> {
  const settings = readRunSettings(argv, flags, { dataPath: 'scenes:8', 'rl.maxCompletionLength': 32 })
  const { config, flags: given } = settings
  requireRead('doctor', settings, config)
  requirePaths(config)
  const findings = (await runHosted({
    module: import.meta.url,
    work: 'doctorWork',
    input: config,
    label: 'doctor',
  })) as Finding[]
  const failed = findings.filter((f) => f.pass === false).length
  if (given.has('json')) process.stdout.write(`${JSON.stringify({ pass: failed === 0, findings })}\n`)
  else process.stdout.write(`${text(findings)}\n${failed === 0 ? 'PASS' : `FAIL: ${failed} of ${findings.length}`}\n`)
  if (failed > 0) process.exitCode = 1
}

/** Runs in the engine thread. */
export async function doctorWork(config: RunConfig, port: EnginePort): Promise<Finding[]> {
  const { doctor } = await import('../run/index.ts')
  return doctor(config, portHost(port))
}

function text(findings: readonly Finding[]): string {
  const word = (pass: boolean | null) => (pass === null ? '-' : pass ? 'PASS' : 'FAIL')
  return aligned(findings.map((f) => [word(f.pass), f.name, f.detail]))
}
