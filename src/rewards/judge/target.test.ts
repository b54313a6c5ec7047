import assert from 'node:assert/strict'
import { test } from 'node:test'
import { JudgeConfig } from '../config.ts'
import { askedJudge, describeJudge, judgeTarget, requireOwnWord } from './target.ts'

const [url, name] = ['rewards.judge.baseUrl', 'rewards.judge.apiKeyEnv']
const env = { AWS_SECRET_ACCESS_KEY: 'secret-1', OPENAI_API_KEY: 'secret-2' }
const elsewhere = { baseUrl: 'http://elsewhere.example/v1' }
const theft = { ...elsewhere, apiKeyEnv: 'AWS_SECRET_ACCESS_KEY' }

function check(settings: object, fromFiles: string[], variables: NodeJS.ProcessEnv = env): void {
  requireOwnWord(judgeTarget(JudgeConfig.parse(settings), variables), new Set(fromFiles))
}

test('a file cannot send a key of the environment to a host of its choice', () => {
  const words = /rewards\.judge\.baseUrl: expected .*sends the key in AWS_SECRET_ACCESS_KEY to elsewhere\.example/
  assert.throws(() => check(theft, [url, name]), words)
  assert.throws(
    () => check(theft, [url, name]),
    (error: Error) => !error.message.includes('secret-1'),
  )
  assert.throws(() => check(elsewhere, [url]), /sends the key in OPENAI_API_KEY to elsewhere/)
  assert.throws(() => check(theft, [name]), /add --rewards\.judge\.apiKeyEnv AWS_SECRET_ACCESS_KEY;/)
  assert.throws(() => check(theft, [url]), /add --rewards\.judge\.baseUrl http:\/\/elsewhere\.example\/v1;/)
  for (const host of [
    '127.0.0.1.evil.example',
    'localhost.evil.example',
    '0.0.0.0',
    '10.0.0.1',
    '[::ffff:7f00:1]',
    'evil127.0.0.1.example',
  ])
    assert.throws(() => check({ baseUrl: `http://${host}/v1` }, [url]), /sends the key/, host)
})

test('a file cannot choose which variable goes out, not even to this machine', () => {
  const other = { apiKeyEnv: 'AWS_SECRET_ACCESS_KEY' }
  assert.throws(() => check(other, [name]), /apiKeyEnv: .*sends the key in AWS_SECRET_ACCESS_KEY to localhost/)
  const named = { ...env, OPENAI_BASE_URL: 'https://api.example/v1' }
  assert.throws(() => check(other, [name], named), /AWS_SECRET_ACCESS_KEY to api\.example/)
  check({ apiKeyEnv: 'OPENAI_API_KEY', ...elsewhere }, [name]) // the usual variable is not a choice
})

test('flags, the environment, a judge on this machine and one without a key are not rejected', () => {
  check(theft, [])
  check(elsewhere, [url], {})
  check(elsewhere, [url], { OPENAI_API_KEY: '  ' })
  for (const host of ['localhost:9100', '127.0.0.1:1', '127.9.9.9', '[::1]:9', 'LOCALHOST'])
    check({ baseUrl: `http://${host}/v1` }, [url])
  check({ baseUrl: null }, [url], { ...env, OPENAI_BASE_URL: 'https://api.example/v1' })
})

test('the hint is safe to paste into a shell', () => {
  const baseUrl = "http://evil.example/$(touch$IFS)/'`id`'"
  const isOneWord = ({ message }: Error) =>
    / --rewards\.judge\.baseUrl 'http:\/\/evil\.example\/[^']*'; for/.test(message)
  assert.throws(() => check({ baseUrl }, [url]), isOneWord)
})

const tasks = (...types: string[]) => ({ one: { rewards: { terms: types.map((type) => ({ type })) } } })

test('a judge is asked when a resolved term asks one, whatever the switches say', () => {
  for (const enabled of [false, true]) {
    const judge = JudgeConfig.parse({ enabled, ...elsewhere })
    assert.equal(askedJudge(judge, tasks('iou', 'meteor'), env), null)
    const { host, keyVariable, hasKey, isLocal } = askedJudge(judge, tasks('meteor', 'judge'), env)!
    assert.deepEqual([host, keyVariable, hasKey, isLocal], ['elsewhere.example', 'OPENAI_API_KEY', true, false])
  }
})

test('a judge is described by model, address, mode and the name of its variable', () => {
  const judge = JudgeConfig.parse({ ...theft, model: 'm', mode: 'number' })
  assert.equal(describeJudge(null), 'none')
  assert.equal(
    describeJudge(judgeTarget(judge, env)),
    'm at http://elsewhere.example/v1, mode number, with the key in AWS_SECRET_ACCESS_KEY',
  )
  assert.equal(describeJudge(judgeTarget(judge, {})), 'm at http://elsewhere.example/v1, mode number, without a key')
})

test('OPENAI_BASE_URL names the judge unless a setting does', () => {
  const at = (settings: object, variables: NodeJS.ProcessEnv) =>
    judgeTarget(JudgeConfig.parse(settings), variables).baseUrl
  assert.equal(at({}, {}), 'http://localhost:9100/v1')
  assert.equal(at({}, { OPENAI_BASE_URL: ' ' }), 'http://localhost:9100/v1')
  assert.equal(at({}, { OPENAI_BASE_URL: 'https://api.example/v1' }), 'https://api.example/v1')
  assert.equal(at(elsewhere, { OPENAI_BASE_URL: 'https://api.example/v1' }), elsewhere.baseUrl)
  for (const bad of ['ftp://x', 'http://me:hunter22@x/v1', 'https://x/v1?key=hunter22', 'hunter22'])
    assert.throws(
      () => at({}, { OPENAI_BASE_URL: bad }),
      (error: Error) =>
        /OPENAI_BASE_URL: expected an http address/.test(error.message) && !error.message.includes('hunter22'),
      bad,
    )
})
