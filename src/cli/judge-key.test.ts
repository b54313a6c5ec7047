import assert from 'node:assert/strict'
import { test } from 'node:test'
import { JudgeConfig } from '../rewards/index.ts'
import { resolveRun } from '../run/index.ts'
import { requireOwnKey } from './judge-key.ts'

const [url, name] = ['rewards.judge.baseUrl', 'rewards.judge.apiKeyEnv']
const env = { AWS_SECRET_ACCESS_KEY: 'secret-1', OPENAI_API_KEY: 'secret-2' }

function check(settings: object, fromRecipe: string[], typed: string[] = [], variables: object = env): void {
  const given = { paths: new Set([...fromRecipe, ...typed]), typed: new Set(typed) }
  requireOwnKey(JudgeConfig.parse({ enabled: true, ...settings }), given, variables as NodeJS.ProcessEnv)
}

test('a recipe cannot send a key of the environment to a host of its choice', () => {
  const elsewhere = { baseUrl: 'http://elsewhere.example/v1' }
  const theft = { ...elsewhere, apiKeyEnv: 'AWS_SECRET_ACCESS_KEY' }
  const words = /rewards\.judge\.baseUrl: expected .*sends the key in AWS_SECRET_ACCESS_KEY to elsewhere\.example/
  assert.throws(() => check(theft, [url, name]), words)
  assert.throws(
    () => check(theft, [url, name]),
    (error: Error) => !error.message.includes('secret-1'),
  )
  assert.throws(() => check(elsewhere, [url]), /sends the key in OPENAI_API_KEY to elsewhere/)
  assert.throws(() => check(theft, [name], [url]), /add --rewards\.judge\.apiKeyEnv AWS_SECRET_ACCESS_KEY/)
  assert.throws(() => check({ baseUrl: 'http://127.0.0.1.evil.example/v1' }, [url]), /127\.0\.0\.1\.evil\.example/)
})

test('what is said on the command line, a judge on this machine and one without a key need no more words', () => {
  const elsewhere = { baseUrl: 'https://judge.example/v1' }
  check(elsewhere, [], [url])
  check({ ...elsewhere, apiKeyEnv: 'AWS_SECRET_ACCESS_KEY' }, [], [url, name])
  check(elsewhere, [url], [], {})
  for (const host of ['localhost:9100', '127.0.0.1:1', '[::1]:9']) check({ baseUrl: `http://${host}/v1` }, [url])
  check({ ...elsewhere, enabled: false }, [url])
})

test('a key in the address or in the place of a name is refused and not shown', () => {
  const settings = { model: 'model', output: 'run', dataPath: 'scenes:4' }
  const keys = [
    'hunter22',
    'sk-0123456789abcdef',
    'sk-0123456789abcdef0123456789',
    '0a1b2c3d4e5f60718293a4b5',
    'k0a1b2c3d4e5f6071829',
  ]
  const given = [
    { baseUrl: `http://me:${keys[0]}@judge.example/v1` },
    { baseUrl: `https://judge.example/v1?key=${keys[1]}` },
    { apiKeyEnv: keys[2]! },
    { apiKeyEnv: keys[3]! },
    { apiKeyEnv: keys[4]! },
  ]
  for (const [i, judge] of given.entries()) {
    const refused = (error: Error) =>
      /expected (an address without user and password, and without a query|the name of an environment)/.test(
        error.message,
      ) && !error.message.includes(keys[i]!)
    assert.throws(() => resolveRun({ ...settings, rewards: { judge } }), refused, JSON.stringify(judge))
  }
  for (const apiKeyEnv of ['OPENAI_API_KEY', 'my_key_2', 'AZURE_OPENAI_API_KEY_OF_TEAM_2'])
    assert.equal(resolveRun({ ...settings, rewards: { judge: { apiKeyEnv } } }).rewards.judge.apiKeyEnv, apiKeyEnv)
})
