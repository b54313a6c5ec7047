// A judge whose replies are well-formed and useless: a run says so in its first steps, in its log and in its last lines.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { runInEngineThread } from '../../src/engine/index.ts'
import { readRun } from '../../src/tracking/index.ts'
import { startServer } from '../support/judge-server.ts'
import { scratch } from '../support/runs.ts'

const folder = scratch('judge-silent')
const bin = fileURLToPath(new URL('../../bin/roundtrip.mjs', import.meta.url))
const toyWork = new URL(`./toy-work.${import.meta.url.endsWith('.ts') ? 'ts' : 'js'}`, import.meta.url)
const model = (await runInEngineThread(toyWork, 'toyWork', join(folder, 'toy'))) as string
const server = await startServer((asked) => (asked.user.includes('Say yes') ? 'yes' : 'I would say 3, no: 9 of 10'))
after(async () => {
  rmSync(folder, { recursive: true, force: true })
  await server.close()
})

const line = [
  ...['train', '--model', model, '--data', 'scenes:8', '--device', 'cpu', '--threads', '1', '--evalRecords', '0'],
  ...['--batchSize', '1', '--rl.numGenerations', '2', '--rl.maxCompletionLength', '6', '--lora.rank', '4'],
  ...['--data.workers', '0', '--checkGroups', 'false', '--use_llm_judge', '--llm_judge_base_url', server.url],
  ...['--rewards.judge.mode', 'number', '--rewards.judge.cacheDir', join(folder, 'cache')],
]
const roundtrip = (...words: string[]) => promisify(execFile)(process.execPath, [bin, ...line, ...words])
const [run, dry] = [
  await roundtrip('--maxSteps', '2', '--output', join(folder, 'run')),
  await roundtrip('--dry-run', '--output', join(folder, 'dry')),
]

test('the first step warns, on the terminal and in events.jsonl', () => {
  const text = /judge: 0 of [12] captions scored: no grade in the reply\./
  const warnings = readRun(join(folder, 'run')).events.flatMap((e) =>
    e.t === 'warning' && e.kind === 'judge' ? [e] : [],
  )
  assert.equal(warnings.length, 1)
  assert.equal(warnings[0]!.step, 1)
  assert.match(warnings[0]!.text, text)
  assert.ok(run.stderr.includes(`warn: ${warnings[0]!.text}`), run.stderr)
})

test('the last lines and a dry run say how many captions the judge scored', () => {
  const reason = 'the last one without a score: no grade in the reply'
  assert.match(run.stdout, new RegExp(`^judge scored 0 of [1-4] captions; ${reason}$`, 'm'))
  assert.match(dry.stdout, new RegExp(`^judge scored 0 of \\d+ captions; ${reason}$`, 'm'))
})

test('a dry run names the judge that it asks', () => {
  assert.match(dry.stdout, /loop1: 0\.25 meteor of caption \+ 0\.75 judge of caption$/m)
  assert.ok(dry.stdout.includes(`at ${server.url}, mode number, `), dry.stdout)
})
