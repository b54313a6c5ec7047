import type { Interval, Metrics } from '../events.ts'
import { TensorboardWriter } from '../tensorboard.ts'
import { meansOf, type Picture, type TrackedRun, type Tracker } from './tracker.ts'

/** TensorBoard files under the run folder: scalars, pictures with their captions, settings as hparams. */
export class TensorboardTracker implements Tracker {
  readonly #writer: TensorboardWriter

  constructor(folder: string, run: TrackedRun, now: number) {
    // TensorBoard forgets from the given step on, and the checkpoint's own step is kept.
    const resumeAt = run.resumedAt === undefined ? undefined : run.resumedAt + 1
    this.#writer = new TensorboardWriter(folder, { now, resumeAt })
    if (resumeAt === undefined) this.#writer.hparams(run.name, run.settings, now)
  }

  step(step: number, metrics: Metrics, now: number): void {
    this.#writer.scalars(step, metrics, now)
  }

  eval(step: number, metrics: Readonly<Record<string, Interval>>, now: number): void {
    this.#writer.scalars(step, meansOf(metrics), now)
  }

  pictures(step: number, pictures: readonly Picture[], now: number): void {
    pictures.forEach((picture, i) => {
      const tag = `samples/${picture.sample.loop}/${i}`
      this.#writer.image(step, tag, picture, now)
      // TensorBoard shows text as Markdown: four spaces make a block in which nothing is read as markup.
      this.#writer.text(step, tag, picture.caption.replace(/^/gm, '    '), now)
    })
  }

  close(reason: string | undefined, now: number): void {
    this.#writer.ended(reason === 'done', now)
    this.#writer.close()
  }
}
