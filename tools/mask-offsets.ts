// How far a model's masks are from the right size: the metrics of held-out scenes when one number is added to all mask logits.
// node --import tsx tools/mask-offsets.ts [--model assets/miniature] [--adapter runs/demo-seed-1] [--offsets=-1,-0.5,0,0.5,1,2,4]
import { Command } from 'commander'
import { log } from '../src/core/index.ts'
import { openSource } from '../src/data/index.ts'
import { type Mask, maskArea, maskIou } from '../src/mask/index.ts'
import { disposeModel, Encoder, loadTrained, openModel, resolveRun } from '../src/run/index.ts'
import { ask } from '../src/tasks/cycle/ask.ts'
import { type Cycle, requireGrounded } from '../src/tasks/cycle/config.ts'
import type { WorkItem } from '../src/tasks/index.ts'
import { cat, noGrad, tidy } from '../src/tensor/index.ts'

const options = new Command()
  .option('--model <dir>', 'folder of the model', 'assets/miniature')
  .option('--adapter <dir>', 'run or checkpoint on top of it')
  .option('--offsets <list>', 'numbers added to the logits', '-1,-0.5,0,0.5,1,2,4')
  .parse()
  .opts<{ model: string; adapter?: string; offsets: string }>()
const [scenes, together] = [256, 16]
const config = resolveRun({
  model: options.model,
  dataPath: `scenes:${scenes}:9001`,
  device: 'cpu',
  dtype: 'float32',
  threads: 1,
  data: { workers: 0 },
  rl: { maxCompletionLength: 24 },
})
const family = requireGrounded(openModel(config))
if (options.adapter) loadTrained(family, options.adapter)
const cycle: Cycle = { family, config }
const encoder = new Encoder(family, config)

/** Masks of the greedy answers with each offset; an answer without [SEG] has none. */
function drawn(items: readonly WorkItem[], offsets: readonly number[]): { truth: Mask; masks: Mask[] }[] {
  return noGrad(() =>
    tidy(() => {
      const rows = ask(
        cycle,
        items.map((item) => family.segment(item.features, item.example.caption)),
      )
      return items.flatMap(({ features, example }, i) => {
        const state = rows[i]!.segStates
        if (!state) return []
        const { logits } = family.drawMasks([features], family.segPrompts(state.narrow(0, 0, 1)))
        const moved = cat(offsets.map((offset) => logits.add(offset)))
        const masks = family.finishMasks(
          offsets.map(() => features),
          moved,
        )
        return [{ truth: example.mask, masks }]
      })
    }),
  )
}

const offsets = options.offsets.split(',').map(Number)
const source = await openSource(config.dataPath, config.data)
const all: ReturnType<typeof drawn> = []
for (let at = 0; at < scenes; at += together) {
  const examples = await Promise.all(Array.from({ length: together }, (_, i) => source.get(at + i)))
  all.push(...encoder.with(examples, (items) => drawn(items, offsets)))
}
for (const [k, offset] of offsets.entries()) {
  const mean = (of: (one: (typeof all)[number]) => number) => all.reduce((sum, one) => sum + of(one), 0) / all.length
  const iou = mean(({ truth, masks }) => maskIou(truth, masks[k]!))
  const area = Math.exp(mean(({ truth, masks }) => Math.log((maskArea(masks[k]!) + 1) / (maskArea(truth) + 1))))
  const empty = all.filter(({ masks }) => maskArea(masks[k]!) === 0).length
  log.info(`offset ${offset}: mask/giou ${iou.toFixed(3)}, area ${area.toFixed(2)} of the true one, ${empty} empty`)
}
await source.close()
disposeModel(family)
