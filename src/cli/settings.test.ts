import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test from 'node:test'
import { parse } from 'yaml'
import { defaultDropout, RunConfig, type RunInput, resolveRun } from '../run/index.ts'
import { taskKinds } from '../tasks/index.ts'
import { basicSettings } from './basic-settings.ts'
import { launchFlags } from './launch.ts'
import { prototypeFlags, unusedFlags } from './prototype-flags.ts'
import { settingPages } from './reference-pages.ts'
import { readRunSettings, rewardFlag, runTable } from './settings.ts'
import { takeTrainAll } from './sft.ts'

const read = (...argv: string[]) => readRunSettings(argv, [rewardFlag]).config

/** Path -> value. */
function flat(value: unknown, path = ''): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return { [path]: value }
  return Object.assign({}, ...Object.entries(value).map(([k, v]) => flat(v, path ? `${path}.${k}` : k)))
}

function at(config: unknown, path: string): unknown {
  return path.split('.').reduce((value, key) => (value as Record<string, unknown>)[key], config)
}

test('every flag of the prototype is accepted and sets what it stands for', () => {
  const values: Record<string, [string, unknown]> = {
    model_path: ['m', 'm'],
    data_dir: ['d', 'd'],
    dataset_name: ['org/name', 'org/name'],
    output_dir: ['o', 'o'],
    batch_size: ['2', 2],
    per_device_batch_size: ['3', 3],
    num_generations: ['6', 6],
    learning_rate: ['2e-6', 2e-6],
    num_epochs: ['2', 2],
    max_steps: ['10', 10],
    save_steps: ['7', 7],
    save_total_limit: ['2', 2],
    log_steps: ['5', 5],
    max_completion_length: ['64', 64],
    gradient_accumulation_steps: ['2', 2],
    kl_coef: ['0.1', 0.1],
    beta: ['0.2', 0.2],
    clip_range: ['0.3', 0.3],
    mask_to_caption_weight: ['0.5', 0.5],
    caption_to_mask_weight: ['2', 2],
    ema_decay: ['0.9', 0.9],
    temperature: ['0.7', 0.7],
    entropy_coef: ['0.01', 0.01],
    warmup_steps: ['20', 20],
    max_grad_norm: ['0.5', 0.5],
    use_llm_judge: ['true', true],
    use_llm_judge_loop2: ['true', true],
    llm_judge_base_url: ['http://127.0.0.1:1/v1', 'http://127.0.0.1:1/v1'],
    llm_judge_model: ['judge', 'judge'],
    lora_r: ['16', 16],
    lora_alpha: ['32', 32],
    lora_dropout: ['0.1', 0.1],
    seed: ['5', 5],
  }
  for (const [flag, path] of Object.entries(prototypeFlags)) assert.ok(runTable().find(path), `${flag}: ${path}`)
  for (const [flag, [text, expected]] of Object.entries(values)) {
    assert.deepEqual(at(read(`--${flag}`, text), prototypeFlags[flag]!), expected, flag)
    assert.deepEqual(at(read(`--${flag}=${text}`), prototypeFlags[flag]!), expected, flag)
  }
})

test('--batch_size and --per_device_batch_size count for each process, batchSize over all', () => {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-per-process-'))
  const recipe = join(folder, 'recipe.yaml')
  writeFileSync(recipe, 'per_device_batch_size: 3\n')
  const sizeOf = (...argv: string[]) => readRunSettings(argv, launchFlags).config.batchSize
  assert.equal(sizeOf('--per_device_batch_size', '1'), 1)
  assert.equal(sizeOf('--nproc', '8', '--per_device_batch_size', '1'), 8)
  assert.equal(sizeOf('--batch_size=2', '--nproc', '4'), 8)
  assert.equal(sizeOf('--nproc', '4', '--batchSize', '8'), 8)
  assert.equal(sizeOf('--nproc', '4', '--recipe', recipe), 12)
  assert.equal(sizeOf('--nproc', '4', '--recipe', recipe, '--batchSize', '8'), 8, 'the last name given decides')
  assert.equal(sizeOf('--nproc', '4', '--batchSize', '8', '--batch_size', '1'), 4)
  assert.throws(() => sizeOf('--nproc', '2', '--batch_size', '0'), /batchSize: expected .*got 0/)
  Object.assign(process.env, { RANK: '1', WORLD_SIZE: '3', LOCAL_RANK: '1', MASTER_ADDR: 'node7' })
  try {
    assert.deepEqual([sizeOf('--per_device_batch_size', '2'), sizeOf('--batchSize', '2')], [6, 2])
  } finally {
    for (const name of ['RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR']) delete process.env[name]
    rmSync(folder, { recursive: true })
  }
})

/** The prototype's own file, with these paths. */
const prototypeConfig = new URL('../../tests/fixtures/negative_points_config.yaml', import.meta.url).pathname

test("the prototype's config file sets, key by key, what the prototype would have used", () => {
  const settings = flat(read('--recipe', 'negative-points', '--recipe', prototypeConfig))
  const expected: Record<string, unknown> = {
    // of the file
    ...{ model: 'models/Seg-Zero-7B', 'points.sam': 'models/sam2.1_hiera_large.pt' },
    ...{ 'lora.rank': 64, 'lora.alpha': 128, 'lora.dropout': 0.05 },
    ...{ 'rl.numGenerations': 8, 'rl.epsilon': 0.2, 'rl.epsilonHigh': 0.28, 'rl.temperature': 0.7 },
    ...{ 'points.reward.alpha': 1, 'points.reward.beta': 1 },
    ...{ 'points.reward.placement': 0.3, 'points.reward.format': 0.1 },
    ...{ batchSize: 2, 'rl.gradientAccumulationSteps': 8, 'optim.learningRate': 1e-5, 'optim.warmupSteps': 100 },
    ...{ maxSteps: 5000, saveSteps: 500, evalSteps: 200 },
    ...{ dataPath: 'data/refcocog', 'data.maskDir': 'data/gt_masks', evalPath: 'data/ReasonSeg/val' },
    ...{ 'points.imageSize': 840, device: 'auto' },
    // of its code: the joint answer in shares of the sides, no KL term, AdamW of torch, a linear schedule
    ...{ task: 'points', train: ['lora'], 'points.mode': 'joint', 'points.coords': 'unit', 'points.thinking': true },
    ...{ 'points.preset': 'origin', 'points.allowEmpty': false, 'points.oob': 'invalid', 'points.dupRadius': null },
    ...{ 'points.formatScore': 'binary', 'points.keepEasy': null, 'points.multimask': false },
    ...{ 'rl.beta': 0, 'rl.lossType': 'dr_grpo', 'rl.maxCompletionLength': 128, 'rl.numIterations': 1 },
    ...{ 'rl.ddof': 0, 'rl.advantageEps': 1e-8, 'optim.weightDecay': 0.01, 'optim.maxGradNorm': 1 },
    ...{ 'optim.lrSchedulerType': 'linear', 'optim.adamBeta1': 0.9, 'optim.adamBeta2': 0.999 },
  }
  for (const [path, value] of Object.entries(expected)) assert.deepEqual(settings[path], value, path)
  const named = new Set(Object.keys(parse(readFileSync(prototypeConfig, 'utf8'))))
  assert.deepEqual(
    [...named].filter((key) => !(key in prototypeFlags) && !(key in unusedFlags) && !runTable().find(key)),
    [],
  )
})

test('beta is a reward weight in a points run and the KL weight in others, wherever the task is named', () => {
  const weights = (...argv: string[]) => {
    const { rl, points } = read(...argv)
    return [rl.beta, points.reward.beta]
  }
  assert.deepEqual(weights('--beta', '0.7'), [0.7, undefined])
  assert.deepEqual(weights('--beta', '0.7', '--task', 'points', '--train', 'lora'), [0.04, 0.7])
  assert.deepEqual(weights('--recipe', 'points', '--beta=0.7', '--kl_coef=0.3'), [0.3, 0.7])
  assert.deepEqual(weights('--recipe', prototypeConfig, '--task=points', '--rl.beta=0.2'), [0.2, 1])
})

test('keys of the prototypes without an effect are accepted, unknown ones are an error', () => {
  const run = (...argv: string[]) => read('--recipe', 'negative-points', ...argv)
  assert.deepEqual(run('--deepspeed', 'zero2.json', '--local_rank=1', '--num_gpus', '2', '--sam_config=a.yaml'), run())
  assert.equal(run('--recipe', prototypeConfig, '--device', 'cuda').device, 'cuda')
  assert.throws(() => run('--deepspeed'), /--deepspeed: expected a value, got nothing/)
  assert.throws(() => run('--deepsped', 'x'), /did you mean --deepspeed\?/)
  assert.throws(() => run('--val_data.mask_dir', 'other', '--mask_dir', 'm'), /val_data\.mask_dir: expected the folder/)
  assert.equal(run('--val_data.mask_dir', 'm', '--mask_dir', 'm').data.maskDir, 'm')
})

test('the flags of the launcher of the first prototype name the folder, the cache and the W&B run', () => {
  const variables = ['HF_DATASETS_CACHE', 'WANDB_PROJECT', 'WANDB_NAME']
  const before = variables.map((name) => process.env[name])
  try {
    const words = ['--cache_dir', 'c', '--wandb_project', 'p', '--wandb_run_name', 'n', '--logging_steps', '7']
    const config = read(...words, '--local_data_dir', 'folder', '--dataset_name', 'org/name')
    assert.deepEqual([config.dataPath, config.logSteps, config.reportTo], ['folder', 7, ['wandb']])
    assert.deepEqual(
      variables.map((name) => process.env[name]),
      ['c', 'p', 'n'],
    )
    assert.deepEqual(read(...words, '--report_to', 'tensorboard').reportTo, ['tensorboard'])
    assert.equal(read('--dataset_name', 'org/name').dataPath, 'org/name')
  } finally {
    for (const [i, name] of variables.entries())
      if (before[i] === undefined) delete process.env[name]
      else process.env[name] = before[i]
  }
})

test('other keys of the task are names of the prototype too: of the reward, of the loss', () => {
  const words = ['--mode', 'second-look', '--loss_norm', 'token', '--clip_lower', '-0.1', '--reward.w_neg', '0.4']
  const { rl, points } = read('--recipe', 'points', ...words, '--reward.gain', 'relative', '--lambda_format', '0.2')
  assert.deepEqual([rl.epsilon, rl.lossType, points.mode], [0.1, 'dapo', 'second-look'])
  assert.deepEqual(points.reward, { placement: 0.4, gainKind: 'relative', format: 0.2 })
  assert.throws(() => read('--loss_norm', 'none'), /--loss_norm: expected/)
})

test("the prototype's defaults are ours, except K and the batch, which are those of the proved recipe", () => {
  const config = read()
  const defaults: Record<string, unknown> = {
    learning_rate: 1e-5,
    num_epochs: 1,
    max_steps: -1,
    save_steps: 500,
    save_total_limit: 3,
    max_completion_length: 256,
    gradient_accumulation_steps: 1,
    kl_coef: 0.04,
    clip_range: 0.2,
    mask_to_caption_weight: 1,
    caption_to_mask_weight: 1,
    ema_decay: 0.999,
    temperature: 1,
    entropy_coef: 0,
    max_grad_norm: 1,
    lora_r: 128,
    lora_alpha: 256,
  }
  assert.equal(defaultDropout, 0.05)
  for (const [flag, value] of Object.entries(defaults)) assert.deepEqual(at(config, prototypeFlags[flag]!), value, flag)
})

test('a key of the optimizer alone is also accepted under rl', () => {
  assert.equal(read('--rl.learningRate', '0').optim.learningRate, 0)
  assert.equal(read('--rl.emaDecay=0.5').optim.emaDecay, 0.5)
  assert.equal(read('--rl.beta', '0').rl.beta, 0)
})

test('--reward adds modules to what is there, --data is dataPath', () => {
  const config = read('--rewards.modules', '[{"path": "a.ts", "weight": 2}]', '--reward', 'b.ts', '--data', 'scenes:8')
  assert.deepEqual(config.rewards.modules, [
    { path: 'a.ts', weight: 2 },
    { path: 'b.ts', weight: 1 },
  ])
  assert.equal(config.dataPath, 'scenes:8')
})

test('given values override those of a preset', () => {
  const config = read('--rl.preset', 'trl', '--rl.numGenerations', '3')
  assert.deepEqual([config.rl.lossType, config.rl.beta, config.rl.numGenerations], ['dapo', 0, 3])
})

test('the preset of the point task decides in a run how answers are read, unless a setting says otherwise', () => {
  const { points } = read('--task', 'points', '--points.preset', 'origin', '--points.oob', 'drop')
  const { allowEmpty, dupRadius, formatScore, keepEasy, oob } = points
  assert.deepEqual([allowEmpty, dupRadius, formatScore, keepEasy, oob], [false, null, 'binary', null, 'drop'])
  assert.deepEqual(resolveRun(JSON.parse(JSON.stringify({ task: 'points', points }))).points, points)
})

test('values outside the range are refused with the setting and the value', () => {
  assert.throws(() => read('--num_generations', '1'), /settings: rl\.numGenerations: expected .*2.*, got 1/)
  assert.throws(() => read('--train', 'lora,vision'), /--train: expected list of/)
  assert.throws(() => read('--loop1.weight', '0', '--loop2.weight', '0'), /at least one loop/)
})

test('every setting can be given its own default', () => {
  for (const { path, default: value } of runTable().settings) {
    if (value === undefined || /^rewards\.(loop[12]|points)\./.test(path)) continue // a task's rewards need their terms too
    const text = typeof value === 'string' ? value : JSON.stringify(value)
    const own = Object.keys(taskKinds).find((kind) => kind !== 'cycle' && path.startsWith(`${kind}.`))
    const task = own ? { words: [`--task=${own}`], input: { task: own } } : { words: [], input: {} }
    assert.deepEqual(at(read(...task.words, `--${path}=${text}`), path), at(resolveRun(task.input), path), path)
  }
})

test('every setting has a description', () => {
  const silent = runTable().settings.filter((s) => s.doc === '')
  assert.deepEqual(
    silent.map((s) => s.path),
    [],
  )
  assert.ok(Object.keys(RunConfig.shape).length > 30)
})

test('the pages of settings are what the schemas say', () => {
  for (const [name, page] of Object.entries(settingPages))
    assert.equal(readFileSync(new URL(`../../docs/${name}`, import.meta.url), 'utf8'), page(), 'npm run gen-reference')
})

test('every setting is on one of the two pages, no more than 65 on the first', () => {
  assert.ok(basicSettings.size <= 65)
  for (const path of basicSettings) assert.ok(runTable().find(path), path)
  const listed = ['reference.md', 'reference-advanced.md'].flatMap((name) => [
    ...settingPages[name]!().matchAll(/^`([\w.]+)` \|.*\|.*\|.*$/gm),
  ])
  const names = new Set(listed.map((m) => m[1]))
  assert.deepEqual(
    runTable().settings.filter((s) => !names.has(s.path)),
    [],
  )
})

test('--train all is taken off the line and other values are left', () => {
  assert.deepEqual(takeTrainAll(['--train', 'all', '--seed', '1']), { argv: ['--seed', '1'], everything: true })
  assert.deepEqual(takeTrainAll(['--train=all']), { argv: [], everything: true })
  assert.deepEqual(takeTrainAll(['--train', 'lora']), { argv: ['--train', 'lora'], everything: false })
})

test('every shipped recipe is found by its name and is a valid run', () => {
  const files = readdirSync(new URL('../../recipes', import.meta.url)).filter((file) => file.endsWith('.yaml'))
  assert.ok(files.length >= 3)
  for (const file of files) {
    const given = readRunSettings(['--recipe', file.replace('.yaml', '')], [])
    assert.ok(given.paths.size > 0, file)
  }
})

test("typed data drop a recipe's held-out records, which belong to the recipe's data", () => {
  const evalPath = (...argv: string[]) => read('--recipe', 'demo', ...argv).evalPath
  assert.equal(evalPath(), 'scenes:256:9001')
  assert.equal(evalPath('--seed', '3'), 'scenes:256:9001')
  assert.equal(evalPath('--data', 'my.jsonl'), null)
  assert.equal(evalPath('--dataPath', 'my.jsonl'), null)
  assert.equal(evalPath('--data', 'my.jsonl', '--evalPath', 'held.jsonl'), 'held.jsonl')
  assert.equal(read('--data', 'my.jsonl', '--evalPath', 'held.jsonl').evalPath, 'held.jsonl')
})

test('counts that mean nothing, or more threads than any machine has, are refused with the range', () => {
  const refused = (input: RunInput, reason: RegExp) => assert.throws(() => resolveRun(input), reason)
  refused({ maxSteps: -2 }, /settings: maxSteps: expected .*>=\s?-1.*got -2/)
  refused({ threads: 5000 }, /settings: threads: expected .*<=\s?1024.*got 5000/)
  refused({ threads: -1 }, /settings: threads: expected .*>=\s?0.*got -1/)
  assert.deepEqual([resolveRun({ maxSteps: -1 }).maxSteps, resolveRun({ threads: 1024 }).threads], [-1, 1024])
})
