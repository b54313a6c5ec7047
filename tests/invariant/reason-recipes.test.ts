// The recipes of task reason take a step on the smallest Qwen2.5-VL and SAM2, and reward what their projects reward.
import assert from 'node:assert/strict'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { readRunSettings } from '../../src/cli/settings.ts'
import { openRewards, scoreGroup } from '../../src/rewards/index.ts'
import { train } from '../../src/run/index.ts'
import { taskKinds } from '../../src/tasks/index.ts'
import { hostOf, scratch } from '../support/runs.ts'

const folder = scratch('reason-recipes')
after(() => rmSync(folder, { recursive: true, force: true }))
const golden = join(import.meta.dirname, '../fixtures/golden')
const small = `--model ${golden}/qwen2_5_vl-tiny --reason.sam ${golden}/sa2va-tiny --dataPath neighbours:4 --device cpu --dtype float32 --threads 1 --reason.imageSize 56 --batchSize 1 --rl.gradientAccumulationSteps 1 --rl.numGenerations 2 --rl.maxCompletionLength 4 --maxSteps 1 --saveSteps 0 --evalRecords 0 --data.workers 0 --tensorboard false --checkGroups false --lora.rank 2`

const published = {
  'seg-zero': { terms: 'thinking format boxIou boxL1 point', beta: 0.005, longest: 1300 },
  'vision-reasoner': { terms: 'thinking format boxIou boxL1 point nonRepeat', beta: 0.01, longest: 2000 },
  'vlm-r1-rec': { terms: 'format boxIou', beta: 0.04, longest: 2048 },
}

for (const [name, { terms, beta, longest }] of Object.entries(published))
  test(`${name}: has the published settings, takes a step, and logs its terms`, async () => {
    const { rl, optim, batchSize } = readRunSettings(['--recipe', name], []).config
    assert.deepEqual([rl.numGenerations, rl.beta, rl.maxCompletionLength, rl.temperature, rl.epsilon], [8, beta, longest, 1, 0.2]) // biome-ignore format: one line
    assert.deepEqual([batchSize * rl.gradientAccumulationSteps, optim.learningRate, optim.maxGradNorm], [16, 1e-5, 1])
    const output = join(folder, name)
    const { config } = readRunSettings(['--recipe', name, ...small.split(' '), '--output', output], [])
    const open = await openRewards(config.rewards, taskKinds.reason.rewards(config).tasks)
    const scoring = open.tasks['reason']!
    const score = (answers: Parameters<typeof scoreGroup>[1]) => scoreGroup(scoring.terms, answers, scoring.options)
    await train(config, hostOf(undefined, { score: async (_, groups) => ({ rows: await Promise.all(groups.map(score)), metrics: {} }) })) // biome-ignore format: one line
    open.close()
    const lines = readFileSync(join(output, 'events.jsonl'), 'utf8').trim().split('\n')
    const step = lines.map((line) => JSON.parse(line) as { t: string; metrics: object }).find(({ t }) => t === 'step')!
    const logged = Object.keys(step.metrics).flatMap((key) => /^reason\/rewards\/(\w+)\/mean$/.exec(key)?.[1] ?? [])
    assert.deepEqual(logged.sort(), terms.split(' ').sort())
  })
