// The settings of a run as flags: canonical names, the names the Python prototype had, recipes. And `roundtrip settings`.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { Command } from 'commander'
import {
  type Alias,
  type CommandFlag,
  type Given,
  readFlags,
  type Setting,
  SettingTable,
  setAt,
  settingSections,
} from '../config/index.ts'
import { log, packageRoot } from '../core/index.ts'
import { OptimConfig } from '../optim/index.ts'
import { RunConfig, type RunInput, resolveRun, resumedSettings } from '../run/index.ts'
import { taskKinds } from '../tasks/index.ts'

/** Flags of the Python prototype; their defaults are the settings' own. */
export const prototypeFlags: Readonly<Record<string, string>> = {
  model_path: 'model',
  data_dir: 'dataPath',
  dataset_name: 'dataPath',
  output_dir: 'output',
  batch_size: 'batchSize',
  per_device_batch_size: 'batchSize',
  num_generations: 'rl.numGenerations',
  learning_rate: 'optim.learningRate',
  num_epochs: 'epochs',
  max_steps: 'maxSteps',
  save_steps: 'saveSteps',
  save_total_limit: 'saveTotalLimit',
  log_steps: 'logSteps',
  report_to: 'reportTo',
  max_completion_length: 'rl.maxCompletionLength',
  gradient_accumulation_steps: 'rl.gradientAccumulationSteps',
  kl_coef: 'rl.beta',
  beta: 'rl.beta',
  clip_range: 'rl.epsilon',
  mask_to_caption_weight: 'loop1.weight',
  caption_to_mask_weight: 'loop2.weight',
  ema_decay: 'optim.emaDecay',
  temperature: 'rl.temperature',
  entropy_coef: 'rl.entropyCoef',
  warmup_steps: 'optim.warmupSteps',
  max_grad_norm: 'optim.maxGradNorm',
  use_llm_judge: 'rewards.judgeLoop1',
  use_llm_judge_loop2: 'rewards.judgeLoop2',
  llm_judge_base_url: 'rewards.judge.baseUrl',
  llm_judge_model: 'rewards.judge.model',
  lora_r: 'lora.rank',
  lora_alpha: 'lora.alpha',
  lora_dropout: 'lora.dropout',
  seed: 'seed',
  // of the prototype that places points
  sam_checkpoint: 'points.sam',
  group_size: 'rl.numGenerations',
  max_new_tokens: 'rl.maxCompletionLength',
  eps_low: 'rl.epsilon',
  clip_lower: 'rl.epsilon',
  eps_high: 'rl.epsilonHigh',
  clip_upper: 'rl.epsilonHigh',
  loss_norm: 'rl.lossType',
  num_iterations: 'rl.numIterations',
  weight_decay: 'optim.weightDecay',
  schedule: 'optim.lrSchedulerType',
  eval_steps: 'evalSteps',
  train_data: 'dataPath',
  arrow_dir: 'dataPath',
  mask_dir: 'data.maskDir',
  val_data: 'evalPath',
  mode: 'points.mode',
  positive_prompt: 'points.positivePrompt',
  previous_mask: 'points.previousMask',
  multimask: 'points.multimask',
  coords: 'points.coords',
  image_size: 'points.imageSize',
  thinking: 'points.thinking',
  max_points: 'points.maxPoints',
  allow_empty: 'points.allowEmpty',
  oob: 'points.oob',
  dup_radius: 'points.dupRadius',
  format_score: 'points.formatScore',
  turns: 'points.turns',
  no_target: 'points.noTarget',
  keep_easy: 'points.keepEasy',
  lambda_neg: 'points.reward.placement',
  lambda_format: 'points.reward.format',
  'reward.w_iou': 'points.reward.iou',
  'reward.w_gain': 'points.reward.gain',
  'reward.gain': 'points.reward.gainKind',
  'reward.gain_eps': 'points.reward.gainEps',
  'reward.w_neg': 'points.reward.placement',
  'reward.alpha': 'points.reward.alpha',
  'reward.beta': 'points.reward.beta',
  'reward.w_format': 'points.reward.format',
  'reward.w_dup': 'points.reward.dup',
  'reward.w_oob': 'points.reward.oob',
  'reward.w_extra': 'points.reward.extra',
  'reward.abstain_bonus': 'points.reward.abstainBonus',
  'reward.tau': 'points.reward.tau',
  'reward.w_over': 'points.reward.over',
  'reward.w_turn': 'points.reward.turn',
  'reward.w_none': 'points.reward.none',
  'reward.r_invalid': 'points.reward.invalid',
}

/** Where the prototype counts in another way: a lower clip below zero, and what the sum over tokens is divided by. */
const prototypeValues: Readonly<Record<string, (text: string) => string>> = {
  clip_lower: (text) => text.replace(/^-/, ''),
  loss_norm: (text) => ({ sequence: 'grpo', token: 'dapo', sum: 'dr_grpo' })[text] ?? text,
}

/** Short names, and the optimizer's settings under `rl.` where that group has none of the name. */
function aliases(): Alias[] {
  const optimizer = Object.keys(OptimConfig.shape).map((key) => ({ name: `rl.${key}`, path: `optim.${key}` }))
  const prototype = Object.entries(prototypeFlags).map(([name, path]) => ({ name, path, read: prototypeValues[name] }))
  return [...prototype, { name: 'data', path: 'dataPath' }, ...optimizer]
}

let table: SettingTable | undefined

export function runTable(): SettingTable {
  table ??= new SettingTable(RunConfig, aliases())
  return table
}

/** A file, or the name of a recipe that comes with the package. */
export function findRecipe(name: string): string {
  if (existsSync(name)) return name
  const shipped = join(packageRoot(), 'recipes', `${name}.yaml`)
  return existsSync(shipped) ? shipped : name
}

export const rewardFlag: CommandFlag = {
  name: 'reward',
  value: 'FILE',
  many: true,
  doc: 'module with a reward of your own, added to both loops',
}

export interface RunSettings extends Given {
  config: RunConfig
  /** Paths of the settings that recipes set and the command line does not. */
  fromFiles: ReadonlySet<string>
}

type Settings = Readonly<Record<string, unknown>>

/** Defaults < the command's own < those of a run folder < recipes < flags, checked. */
export function readRunSettings(
  argv: readonly string[],
  own: readonly CommandFlag[],
  commandDefaults: Settings = {},
  ofRun: (given: Given) => Settings = () => ({}),
): RunSettings {
  const given = readFlags(argv, runTable(), own, findRecipe)
  const input: Record<string, unknown> = {}
  for (const [path, value] of Object.entries(commandDefaults)) setAt(input, path, value)
  const stored = takeStored(ofRun(given), given, input)
  for (const path of given.paths) setAt(input, path, valueAt(given.settings, path))
  if (isOtherData(given)) setAt(input, 'evalPath', null)
  const modules = given.flags.get(rewardFlag.name) ?? []
  if (modules.length > 0) {
    const before = (valueAt(given.settings, 'rewards.modules') as unknown[] | undefined) ?? []
    setAt(input, 'rewards.modules', [...before, ...modules.map((path) => ({ path }))])
  }
  const config = resolveRun(input as RunInput, given.paths)
  for (const path of stored) given.paths.add(path) // written in a file, as a recipe's are, and not typed
  const fromFiles = new Set([...given.paths].filter((path) => !given.typed.has(path)))
  return { ...given, config, fromFiles }
}

/** The held-out records of a recipe belong to its own data. */
function isOtherData({ typed, ofRecipes }: Given): boolean {
  const both = ofRecipes.has('dataPath') && ofRecipes.has('evalPath')
  return both && typed.has('dataPath') && !typed.has('evalPath')
}

/** Puts stored settings that were not given in place; returns and logs those that differ from the defaults. */
function takeStored(stored: Settings, given: Given, input: Record<string, unknown>): string[] {
  const taken = Object.entries(stored).filter(([path]) => !given.paths.has(path))
  const text = (value: unknown) => JSON.stringify(value) ?? 'none'
  const others = taken.filter(([path, value]) => {
    return text(value) !== text(valueAt(input, path) ?? runTable().find(path)?.default)
  })
  for (const [path, value] of taken) setAt(input, path, value)
  if (others.length > 0)
    log.info(`settings of the run: ${others.map(([path, value]) => `${path} ${text(value)}`).join(', ')}`)
  return others.map(([path]) => path)
}

/** `ofRun` of a command that resumes the run in its output folder. */
export const ofResumed =
  (output: string) =>
  (given: Given): Settings =>
    resumedSettings(String(valueAt(given.settings, 'output') ?? output))

function valueAt(value: unknown, path: string): unknown {
  let at = value
  for (const key of path.split('.')) at = (at as Record<string, unknown> | undefined)?.[key]
  return at
}

export function wantsHelp(argv: readonly string[]): boolean {
  return argv.includes('--help') || argv.includes('-h')
}

/** What `--help` of a command with run settings prints. */
export function runHelp(name: string, about: string, own: readonly CommandFlag[]): string {
  const flags = [...own, { name: 'recipe', value: 'FILE', doc: 'settings from a YAML or JSON file, or a shipped name' }]
  const settings = firstSettings.map(([path, when]) => [`--${path === 'dataPath' ? 'data' : path}`, when] as const)
  const kinds = Object.entries(taskKinds).map(([kind, { doc }]) => [`--task ${kind}`, doc] as const)
  return [
    `usage: npx roundtrip-rl ${name} [--setting value ...]`,
    '',
    about,
    '',
    ...rowsOf(flags.map((f) => [`--${f.name}${f.value ? ` ${f.value}` : ''}`, f.doc] as const)),
    '',
    'Settings of a first run:',
    ...rowsOf(settings),
    '',
    'Tasks, or the path of a module that exports one:',
    ...rowsOf(kinds),
    '',
    'Example:',
    `  npx roundtrip-rl ${name} --recipe demo --model assets/miniature --data scenes:200 --output runs/first`,
    '',
    'Every setting is a flag: --rl.numGenerations 8. `npx roundtrip-rl settings [WORD]` lists them.',
    '',
  ].join('\n')
}

function rowsOf(rows: readonly (readonly [flag: string, doc: string])[]): string[] {
  const width = Math.max(...rows.map(([flag]) => flag.length))
  return rows.map(([flag, doc]) => `  ${flag.padEnd(width)}  ${doc}`)
}

/** A command that takes run settings: the words after its name come unread. */
export function runCommand(
  name: string,
  about: string,
  own: readonly CommandFlag[],
  run: (argv: readonly string[]) => Promise<void>,
): Command {
  return new Command(name)
    .description(about)
    .helpOption(false)
    .allowUnknownOption()
    .allowExcessArguments()
    .action(async (_options: unknown, command: Command) => {
      if (wantsHelp(command.args)) process.stdout.write(runHelp(name, about, own))
      else await run(command.args)
    })
}

export function showDefault({ default: value }: Setting): string {
  if (value === undefined) return 'none'
  return typeof value === 'string' ? value || "''" : JSON.stringify(value)
}

/** What a first run changes, and when; the rest of the page is for looking up. */
const firstSettings: readonly (readonly [path: string, when: string])[] = [
  ['model', 'always: the folder of the checkpoint'],
  ['dataPath', 'always: the records'],
  ['output', 'always: the run folder; the same one goes on with the run'],
  ['train', 'to freeze a part: `mlp1,lora` for captions alone'],
  ['maxSteps', 'how long to train'],
  ['batchSize', 'down when memory is short'],
  ['rl.gradientAccumulationSteps', 'up when `batchSize` goes down, so that a step sees as many records'],
  ['rl.numGenerations', 'K: more samples, steadier advantages, more time'],
  ['rl.maxCompletionLength', 'the longest answer worth having, in tokens'],
  ['optim.learningRate', 'up when nothing moves, down when figures fall'],
  ['rl.beta', 'up when the model drifts from what it could do before'],
  ['rewards.preset', 'what is rewarded: the round trips, or captions with a judge'],
]

/** docs/reference.md. */
export function referencePage(): string {
  const cell = (text: string) => text.replaceAll('|', '\\|')
  const sections = settingSections(runTable()).map(({ group, doc, settings }) => [
    `## ${group === '' ? 'Run' : `\`${group}\``}`,
    '',
    ...(doc ? [`${doc[0]!.toUpperCase()}${doc.slice(1)}.`, ''] : []),
    '| setting | default | meaning | values |',
    '|---|---|---|---|',
    ...settings.map((s) => `| \`${s.path}\` | \`${showDefault(s)}\` | ${cell(s.doc)} | ${cell(s.type)} |`),
    '',
  ])
  const flags = Object.entries(prototypeFlags).map(
    ([flag, path]) => `| \`--${flag}\` | \`${path}\` | \`${showDefault(runTable().find(path)!)}\` |`,
  )
  return [
    '# Settings',
    '',
    'Generated from the schemas by `npx tsx scripts/gen-reference.ts`. A setting is a key of a recipe file and a flag of the same',
    'spelling: `--rl.numGenerations 8` or `--rl.numGenerations=8`. Defaults, then recipes in order, then flags; later wins.',
    'Lists are written `a,b,c` or as JSON, objects as JSON, `null` where a setting allows it. Settings of `optim` are also accepted',
    'under `rl.` where that group has none of the name (`--rl.learningRate`). `--data PATH` is `dataPath`; `--reward FILE` adds an',
    'entry to `rewards.modules`.',
    '',
    '## The twelve settings you will touch',
    '',
    '| setting | default | when |',
    '|---|---|---|',
    ...firstSettings.map(([path, when]) => `| \`${path}\` | \`${showDefault(runTable().find(path)!)}\` | ${when} |`),
    '',
    'Everything else has a default that the recipes and experiments use. The full list follows.',
    '',
    ...sections.flat(),
    '## Names of the Python prototype',
    '',
    '| flag | setting | default |',
    '|---|---|---|',
    ...flags,
    '',
  ].join('\n')
}

/** `roundtrip settings [WORD]`: settings whose name or meaning has the word, with their defaults. */
export function command(): Command {
  return new Command('settings')
    .description('list the settings of a run: name, default, meaning')
    .argument('[word]', 'only those whose name or meaning has it')
    .action((word?: string) => {
      const wanted = word?.toLowerCase() ?? ''
      const found = runTable().settings.filter((s) => `${s.path} ${s.doc}`.toLowerCase().includes(wanted))
      for (const s of found) process.stdout.write(`--${s.path}  [${showDefault(s)}]\n    ${s.doc} (${s.type})\n`)
      if (found.length === 0) process.stderr.write(`no setting has the word ${word}\n`)
    })
}
