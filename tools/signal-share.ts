// How much of loop 2's gradient is signal, for each trained group: the same records again and again with new noise on the action.
// node --import tsx tools/signal-share.ts [--action both|field|embedding] [--grid 16] [--draws 80] [--records 16] [--model assets/miniature]
//   [--loop2 '{"actionStd":1}'] [--rl '{"numGenerations":8}']
// With g of one draw and m the mean over all, the share is (|m|^2 - E|g|^2 / n) n / (n - 1) / E|g|^2: 1 without noise, 0 for noise alone.
// An estimate from n draws is good to about 1 / n.
import { Command } from 'commander'
import { log } from '../src/core/index.ts'
import { openSource } from '../src/data/index.ts'
import { openRewards, scoreGroup } from '../src/rewards/index.ts'
import { sampleAndScore, step } from '../src/rl/index.ts'
import { disposeModel, Encoder, Learner, openModel, type RunConfig, resolveRun, runOf } from '../src/run/index.ts'
import { type TaskKind, taskKinds } from '../src/tasks/index.ts'
import { tidy } from '../src/tensor/index.ts'

type Action = 'both' | 'field' | 'embedding'

interface Sums {
  sum: Float64Array
  squares: number
}

/** What each action reaches. */
const groupsOf: Record<Action, RunConfig['train']> = {
  both: ['mlp1', 'lora', 'text_hidden_fcs', 'mask_decoder', 'prompt_encoder'],
  field: ['mlp1', 'lora', 'text_hidden_fcs', 'mask_decoder', 'prompt_encoder'],
  embedding: ['mlp1', 'lora', 'text_hidden_fcs'],
}

interface Options {
  action: Action
  grid: number
  draws: number
  records: number
  model: string
  /** More settings of the loop and of the method. */
  loop2: object
  rl: object
}

function settings({ action, model, grid, loop2, rl }: Options): RunConfig {
  return resolveRun({
    model,
    dataPath: 'scenes:4000',
    device: 'cpu',
    dtype: 'float32',
    threads: 1,
    data: { workers: 0 },
    train: [...groupsOf[action]],
    loop1: { weight: 0 },
    // under plain `field` the words are reached only beside a mask loss: a tiny weight opens the way and adds no gradient to speak of
    loop2: {
      action,
      grid,
      beta: 0,
      ...(action === 'embedding' ? { actionStd: 0.6 } : {}),
      maskLoss: action === 'field' ? 1e-12 : 0,
      ...loop2,
    },
    rl: { numGenerations: 6, maxCompletionLength: 24, beta: 0, ...rl },
    lora: { rank: 16, alpha: 32 },
    optim: { maxGradNorm: 0 },
  })
}

function shareOf({ sum, squares }: Sums, draws: number): number {
  const mean = sum.reduce((n, v) => n + (v / draws) ** 2, 0)
  const each = squares / draws
  return each === 0 ? 0 : ((mean - each / draws) * draws) / (draws - 1) / each
}

function add(sums: Sums, values: readonly number[]): void {
  values.forEach((v, i) => {
    sums.sum[i]! += v
    sums.squares += v * v
  })
}

/** Gradients by group, taken where the optimizer would use them: no weight moves. */
function watch(learner: Learner): Map<string, Sums> {
  const groups = learner.counts().map(({ group }) => [group, [...learner.namesOf(group)]] as const)
  const found = new Map<string, Sums>()
  learner.optim.step = () => {
    const params = learner.params()
    for (const [group, names] of groups) {
      const values = names.flatMap((name) =>
        tidy(() => params.get(name)!.grad()?.numbers() ?? new Array<number>(params.get(name)!.numel).fill(0)),
      )
      const sums = found.get(group) ?? { sum: new Float64Array(values.length), squares: 0 }
      found.set(group, sums)
      add(sums, values)
    }
  }
  return found
}

async function measure(options: Options): Promise<void> {
  const { action, draws, records } = options
  const config = settings(options)
  const kind = taskKinds.cycle as TaskKind<RunConfig>
  const rewards = await openRewards(config.rewards, kind.rewards(config).tasks)
  const family = openModel(config)
  const learner = new Learner(family, config)
  const encoder = new Encoder(family, config)
  const score = async (task: string, groups: Parameters<typeof scoreGroup>[1][]) => {
    const { terms, options } = rewards.tasks[task]!
    return { rows: await Promise.all(groups.map((g) => scoreGroup(terms, g, options))), metrics: {} }
  }
  const run = runOf(config, kind.build(family, config), learner, encoder, { score: score as never })
  const source = await openSource(config.dataPath, config.data)
  const items = encoder.items(await Promise.all(Array.from({ length: records }, (_, i) => source.get(i))))
  await source.close()
  encoder.inWork(items, () => {
    for (const task of run.tasks) if (task.opens) task.open(items)
  })
  const found = watch(learner)
  for (let draw = 1; draw <= draws; draw++) {
    const batch = { draw: { seed: config.seed, step: draw }, pieces: [items] }
    await step(run, { ...batch, groups: await sampleAndScore(run, batch) }, 0)
    if (draw > 1 && (draw % 10 === 0 || draw === draws)) tell(action, found, draw)
  }
  encoder.release(items)
  learner.dispose()
  disposeModel(family)
  rewards.close()
}

function tell(action: Action, found: ReadonlyMap<string, Sums>, draws: number): void {
  const shares = [...found].map(([group, sums]) => `${group} ${(100 * shareOf(sums, draws)).toFixed(2)} %`)
  log.info(`${action}, ${draws} draws: ${shares.join(', ')} (+-${(100 / draws).toFixed(2)} %)`)
}

const asJson = (text: string) => JSON.parse(text) as object
await measure(
  new Command()
    .option('--action <name>', 'both, field or embedding', 'both')
    .option('--grid <n>', 'loop2.grid', Number, 16)
    .option('--draws <n>', 'how often', Number, 80)
    .option('--records <n>', 'how many', Number, 16)
    .option('--loop2 <json>', 'more settings of loop2', asJson, {})
    .option('--rl <json>', 'more settings of rl', asJson, {})
    .option('--model <dir>', 'folder of the model', 'assets/miniature')
    .parse()
    .opts<Options>(),
)
