import { flagsOf } from '../config/index.ts'
import { requirePaths, runWork } from '../host/index.ts'
import type { Finding } from '../run/index.ts'
import { requireRead } from './command-settings.ts'
import { type RunCommand, readRunSettings, rewardFlag, runCommand } from './settings.ts'
import { aligned } from './table.ts'
import { inScratch, strictFlag } from './train.ts'

const flags = [strictFlag, rewardFlag, ...flagsOf({ json: 'print the findings as one JSON object' })]

export const help: RunCommand = {
  name: 'doctor',
  about:
    'Check a model before training: gradients reach every group, frozen weights stay, the image matters, the ratio is 1. The last line is a verdict: can this model learn from these records? Writes nothing.',
  flags,
  example: '--recipe demo --model assets/miniature',
}

export const command = () => runCommand(help, run)

async function run(argv: readonly string[]): Promise<void> {
  const settings = readRunSettings(argv, flags, { dataPath: 'scenes:8', 'rl.maxCompletionLength': 32 })
  const { config, flags: given } = settings
  requireRead('doctor', settings, config)
  requirePaths(config)
  const all = await inScratch(settings, (input, scores) => runWork('doctor', input, { label: 'doctor', scores }))
  const [findings, verdict] = [all.slice(0, -1), all.at(-1)!]
  const failed = findings.filter((f) => f.pass === false).length
  const end = failed === 0 ? 'PASS' : `FAIL: ${failed} of ${findings.length}`
  if (given.has('json')) process.stdout.write(`${JSON.stringify({ pass: failed === 0, findings: all })}\n`)
  else process.stdout.write(`${text(findings)}\n${end}\n${verdict.detail}\n`)
  if (failed > 0 || (given.has('strict') && !verdict.pass)) process.exitCode = 1
}

function text(findings: readonly Finding[]): string {
  const word = (pass: boolean | null) => (pass === null ? '-' : pass ? 'PASS' : 'FAIL')
  return aligned(findings.map((f) => [word(f.pass), f.name, f.detail]))
}
