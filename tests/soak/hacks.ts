// Trains the miniatures with rewards that invite a trick and reports each alarm with its step; the demos must raise none.
// `node --import tsx tests/soak/hacks.ts FOLDER [NAME...]`: whole-image, empty-mask, one-point, repeated-word, longest-answer, or
// demo-SEED and points-SEED. About a minute a run on an idle machine.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readRun } from '../../src/tracking/index.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** Settings of a run whose only reward is the hack. */
export function hackSettings(hack: string): string {
  const path = join(root, 'tests/support/hacks', `${hack}.mjs`)
  const terms = `{ terms: [{ type: module, weight: 1, path: '${path}' }] }`
  if (hack === 'one-point') return `rewards: { points: ${terms} }\n`
  const ofMasks = hack === 'whole-image' || hack === 'empty-mask'
  const [own, other] = ofMasks ? ['loop2', 'loop1'] : ['loop1', 'loop2']
  const train = ofMasks ? '' : 'train: [mlp1, lora]\n'
  return `${other}: { weight: 0 }\n${train}optim: { learningRate: 2e-3 }\nrewards: { ${own}: ${terms} }\n`
}

function wordsOf(name: string, folder: string): string[] {
  const demo = /^(demo|points)-(\d+)$/.exec(name)
  const task = name === 'one-point' || demo?.[1] === 'points' ? ['--task', 'points'] : []
  if (demo) return [...task, '--seed', demo[2]!]
  const settings = join(folder, `${name}.yaml`)
  writeFileSync(settings, hackSettings(name))
  return [...task, '--recipe', settings, '--maxSteps', '30', '--evalRecords', '2']
}

function report(name: string, folder: string): void {
  const output = join(folder, name)
  if (existsSync(output)) rmSync(output, { recursive: true })
  const args = [join(root, 'bin/roundtrip.mjs'), 'demo', '--output', output, ...wordsOf(name, folder)]
  const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`${name}: ${stderr}`)
  const alarms = readRun(output).events.flatMap((e) => (e.t === 'warning' && e.kind.startsWith('alarm/') ? [e] : []))
  for (const { step, kind, text } of alarms) process.stdout.write(`${name}: step ${step}: ${kind}: ${text}\n`)
  if (alarms.length === 0) process.stdout.write(`${name}: no alarm\n`)
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [folder, ...names] = process.argv.slice(2)
  mkdirSync(folder!, { recursive: true })
  const hacks = ['whole-image', 'empty-mask', 'one-point', 'repeated-word', 'longest-answer']
  for (const name of names.length > 0 ? names : hacks) report(name, folder!)
}
