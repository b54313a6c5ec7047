// Trains the miniatures with rewards that invite a trick, one run each, and reports the first alarm of each run. The demos' rewards
// must raise none. `node --import tsx tests/soak/hacks.ts [NAME...]`; about a minute a run.
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const hacks = ['whole-image', 'empty-mask', 'one-point', 'repeated-word', 'longest-answer']
const steps = 30

export function hackRecipe(hack: string): string {
  return `rewards: { modules: [{ path: ${join(root, 'tests/support/hacks', `${hack}.mjs`)}, weight: 9 }] }\n`
}

function run(name: string, out: string): void {
  const demo = /^demo(-points)?-(\d+)$/.exec(name)
  const points = name === 'one-point' || demo?.[1]
  const settings = join(out, `${name}.yaml`)
  writeFileSync(settings, demo ? '{}\n' : hackRecipe(name))
  const words = ['--output', join(out, name), ...(points ? ['--task', 'points'] : [])]
  const more = demo ? ['--seed', demo[2]!] : ['--recipe', settings, '--maxSteps', String(steps), '--evalRecords', '2']
  const args = [join(root, 'bin/roundtrip.mjs'), 'demo', ...words, ...more]
  const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`${name}: ${stderr}`)
}

const [out, ...names] = process.argv.slice(2)
for (const name of names.length > 0 ? names : hacks) run(name, out!)
