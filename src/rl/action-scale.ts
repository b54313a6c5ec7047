import { noGrad, stack, type Tensor, tidy } from '../tensor/index.ts'
import type { Run } from './step.ts'
import { contextOf } from './step.ts'
import { gridOf, pooled } from './tasks/action.ts'
import type { WorkItem } from './tasks/index.ts'
import { ask } from './tasks/reading.ts'

/** The spread of what the action perturbs: standard deviation over records, averaged over dimensions, times loop2.actionStd. */
export function measureActionScale(run: Run, items: readonly WorkItem[]): number {
  const { config, learner } = run
  const { model, prompter } = learner.loaded
  const spread = noGrad(() =>
    tidy(() => {
      const rows = ask(
        contextOf(run),
        items.map((item) => prompter.segment(item.features, item.example.caption)),
      )
      const means: Tensor[] = []
      rows.forEach((row, i) => {
        if (!row.segStates) return
        const e = model.segPrompts(row.segStates.narrow(0, 0, 1))
        if (config.loop2.action === 'embedding') means.push(e.squeeze(0).to('float32'))
        else {
          const { logits } = model.drawMasks(items[i]!.features, e)
          means.push(pooled(logits.to('float32'), gridOf(config.loop2.grid, logits.size(1))).flatten())
        }
      })
      if (means.length === 0) return 1
      if (means.length === 1) return means[0]!.std(null, { correction: 1 }).item()
      const all = stack(means) // [n, d]
      return all.std([0], { correction: 1 }).mean().item()
    }),
  )
  return Math.max(spread, 1e-6) * config.loop2.actionStd
}
