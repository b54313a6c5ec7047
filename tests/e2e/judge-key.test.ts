// Who gets a key: no file chooses it, whatever settings it uses to have a judge asked. 0.0.0.0 reaches this machine under a name that
// is not this machine's.
import assert from 'node:assert/strict'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test, { after, beforeEach } from 'node:test'
import { command as evalCommand } from '../../src/cli/eval.ts'
import { readRunSettings } from '../../src/cli/settings.ts'
import { command as trainCommand } from '../../src/cli/train.ts'
import { runInEngineThread } from '../../src/engine/index.ts'
import { train } from '../../src/host/index.ts'
import { resolveRun } from '../../src/run/index.ts'
import { settingsOfTask } from '../../src/tasks/index.ts'
import { startServer } from '../support/judge-server.ts'
import { scratch } from '../support/runs.ts'

const folder = scratch('judge-key')
const at = (...path: string[]) => join(folder, ...path)
const toyWork = new URL(`./toy-work.${import.meta.url.endsWith('.ts') ? 'ts' : 'js'}`, import.meta.url)
const model = (await runInEngineThread(toyWork, 'toyWork', at('toy'))) as string
const server = await startServer(() => '7')
const elsewhere = server.url.replace('127.0.0.1', '0.0.0.0')
Object.assign(process.env, { OPENAI_API_KEY: 'sk-of-the-user-1', OTHER_SECRET: 'aws-of-the-user-1' })
after(async () => {
  rmSync(folder, { recursive: true, force: true })
  await server.close()
})
beforeEach(() => {
  server.asked.length = 0
})

const small = ['--model', model, '--data', 'scenes:8', '--device', 'cpu', '--threads', '1', '--evalRecords', '0']
const more = ['--maxSteps', '1', '--batchSize', '1', '--rl.numGenerations', '2', '--rl.maxCompletionLength', '4']
const cache = ['--rewards.judge.cacheDir', at('cache'), '--rewards.judge.mode', 'number', '--checkGroups', 'false']
const line = [...small, ...more, ...cache, '--lora.rank', '4', '--data.workers', '0', '--output', at('run')]

let recipes = 0
function recipe(settings: object): string {
  const path = at(`recipe-${recipes++}.json`)
  writeFileSync(path, JSON.stringify(settings))
  return path
}

const trained = (...words: string[]) => trainCommand().parseAsync(['node', 'train', ...line, ...words])

/** Every way in which settings have a judge asked. */
const ways: Record<string, object> = {
  'the flag of the notes': { use_llm_judge: true },
  'the flag of loop 2': { use_llm_judge_loop2: true },
  judgeLoop1: { rewards: { judgeLoop1: true } },
  'an enabled judge and a preset': { rewards: { preset: 'mixed', judge: { enabled: true } } },
  'an enabled judge and terms': {
    rewards: { loop1: { terms: [{ type: 'judge', weight: 1, of: 'caption' }] }, judge: { enabled: true } },
  },
}

test('a recipe sends no key to a host of its choice, however it has the judge asked', async () => {
  const words = /sends the key in OPENAI_API_KEY to 0\.0\.0\.0.*add --rewards\.judge\.baseUrl/
  for (const [name, way] of Object.entries(ways))
    for (const dry of [[], ['--dry-run']]) {
      const evil = recipe({ ...way, llm_judge_base_url: elsewhere })
      await assert.rejects(trained('--recipe', evil, ...dry), words, name)
    }
  assert.equal(server.asked.length, 0)
})

test('a recipe chooses no variable of the environment, neither for another host nor for this machine', async () => {
  for (const baseUrl of [elsewhere, server.url]) {
    const chosen = {
      'rewards.judgeLoop1': true,
      'rewards.judge.apiKeyEnv': 'OTHER_SECRET',
      'rewards.judge.baseUrl': baseUrl,
    }
    await assert.rejects(trained('--recipe', recipe(chosen), '--dry-run'), /sends the key in OTHER_SECRET/)
  }
  const parts = recipe({ 'rewards.judge.apiKeyEnv': 'OTHER_SECRET' })
  const flags = ['--use_llm_judge', '--llm_judge_base_url', elsewhere]
  await assert.rejects(trained('--recipe', parts, ...flags, '--dry-run'), /--rewards\.judge\.apiKeyEnv OTHER_SECRET/)
  assert.equal(server.asked.length, 0)
})

test('the settings of a run folder, taken as a recipe, choose no host either', async () => {
  const rewards = { judgeLoop1: true, judge: { baseUrl: elsewhere } }
  const config = resolveRun({ model, dataPath: 'scenes:8', rewards })
  mkdirSync(at('stranger'), { recursive: true })
  writeFileSync(at('stranger', 'config.json'), JSON.stringify(settingsOfTask(config)))
  await assert.rejects(trained('--recipe', at('stranger', 'config.json')), /sends the key in OPENAI_API_KEY/)
  // A run in that folder takes its settings from the command line, not from the folder.
  const own = readRunSettings(['--output', at('stranger')], []).config
  assert.deepEqual([own.rewards.judge.baseUrl, own.rewards.judgeLoop1], [null, false])
  assert.equal(server.asked.length, 0)
})

test('a benchmark with a judge is guarded in the same way', async () => {
  const evil = recipe({ 'rewards.judge.enabled': true, 'rewards.judge.baseUrl': elsewhere })
  const words = ['--benchmark', 'dlc-bench', '--data', folder, '--recipe', evil, '--out', at('bench')]
  await assert.rejects(evalCommand().parseAsync(['node', 'eval', ...words]), /sends the key in OPENAI_API_KEY/)
  assert.equal(server.asked.length, 0)
})

test('flags, OPENAI_BASE_URL and code are the user and reach the judge with the key', async () => {
  const keys = () => new Set(server.asked.splice(0).map((asked) => asked.authorization))
  await trained('--use_llm_judge', '--llm_judge_base_url', elsewhere, '--dry-run')
  assert.deepEqual(keys(), new Set(['Bearer sk-of-the-user-1']))
  const flagged = recipe({ use_llm_judge: true, llm_judge_base_url: elsewhere })
  await trained('--recipe', flagged, '--llm_judge_base_url', elsewhere, '--dry-run')
  assert.deepEqual(keys(), new Set(['Bearer sk-of-the-user-1']))
  process.env.OPENAI_BASE_URL = elsewhere
  await trained('--recipe', recipe({ use_llm_judge: true }), '--dry-run')
  delete process.env.OPENAI_BASE_URL
  assert.deepEqual(keys(), new Set(['Bearer sk-of-the-user-1']))
  const { config } = readRunSettings([...line, '--output', at('code')], [])
  const judge = { ...config.rewards.judge, baseUrl: elsewhere, apiKeyEnv: 'OTHER_SECRET' }
  await train({ ...config, rewards: { ...config.rewards, judgeLoop1: true, judge } }, { onProgress: () => undefined })
  assert.deepEqual(keys(), new Set(['Bearer aws-of-the-user-1']))
})

test('a recipe without a judge term may name any host, because nothing is sent', async () => {
  await trained('--recipe', recipe({ 'rewards.judge.baseUrl': elsewhere, 'rewards.judge.enabled': true }), '--dry-run')
  assert.equal(server.asked.length, 0)
})

test('a key in the address or in the place of a name is rejected and not shown', () => {
  const keys = ['hunter22', 'sk-0123456789abcdef', 'sk-0123456789abcdef0123456789', '0a1b2c3d4e5f60718293a4b5']
  const given: { baseUrl?: string; apiKeyEnv?: string }[] = [
    { baseUrl: `http://me:${keys[0]}@judge.example/v1` },
    { baseUrl: `https://judge.example/v1?key=${keys[1]}` },
    { baseUrl: `me:${keys[0]}@judge.example/v1` },
    { baseUrl: `https://judge.example:99999/?key=${keys[1]}` },
    { apiKeyEnv: keys[2]! },
    { apiKeyEnv: keys[3]! },
  ]
  const words = /expected (an http address without user and password, and without a query|the name of an environment)/
  for (const judge of given) {
    const hidden = ({ message }: Error) => words.test(message) && !keys.some((key) => message.includes(key))
    assert.throws(
      () => resolveRun({ model: 'm', dataPath: 'scenes:4', rewards: { judge } }),
      hidden,
      JSON.stringify(judge),
    )
  }
})
