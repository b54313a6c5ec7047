// Both answers of a record and its mask as a supervised batch: images of different shapes go through apart.
import { stream, streamId } from '../../core/index.ts'
import type { Example } from '../../data/index.ts'
import type { World } from '../../distributed/index.ts'
import type { GroundedFamily } from '../../models/index.ts'
import { backward, clearTape, tidy } from '../../tensor/index.ts'
import type { BatchPosition, LessonOptions, SupervisedBatches } from '../kind.ts'
import { type SupervisedRecord, supervisedLoss } from './supervised.ts'

export interface CycleLessonSettings extends LessonOptions {
  checkpointing: boolean
}

/** Metrics of a step: short names, and those of the log. */
const metrics = { loss: 'loss', caption: 'caption_loss', answer: 'answer_loss', mask: 'mask_bce', dice: 'mask_dice' }

export function cycleLessons(family: GroundedFamily, settings: CycleLessonSettings): SupervisedBatches {
  return {
    metrics,
    learn: (batch, place) => learnBatch(family, settings, batch, place),
  }
}

/** Gradient of this process's records of a micro-batch. */
async function learnBatch(
  family: GroundedFamily,
  { everything, maskWeight, checkpointing, maxTiles }: CycleLessonSettings,
  batch: readonly Example[],
  { seed, step, micro, share, world }: BatchPosition,
): Promise<Record<string, number>> {
  const sums = { loss: 0, caption: 0, answer: 0, mask: 0, dice: 0 }
  for (const alike of await byShape(family, batch, maxTiles, world)) {
    if (alike.every(({ input }) => input === null)) continue
    const weight = (share * alike.length) / batch.length
    const random = stream(seed, streamId.rows, step, micro, alike[0]!.example.id)
    try {
      tidy(() => {
        const options = { trainEncoders: everything, maskWeight, checkpointing }
        const { loss, report } = supervisedLoss(family, alike, random, options)
        backward(loss.mul(weight))
        const { bce: mask, ...rest } = report()
        const found = { ...rest, mask, loss: loss.item() }
        for (const name of Object.keys(sums) as (keyof typeof sums)[]) sums[name] += weight * found[name]
      })
    } finally {
      clearTape()
    }
  }
  return sums
}

/** Records whose images can be encoded together, in order of first appearance; each process prepares its own. */
async function byShape(
  family: GroundedFamily,
  batch: readonly Example[],
  maxTiles: number | null,
  world: World,
): Promise<SupervisedRecord[][]> {
  const options = { maxTiles: maxTiles ?? undefined }
  const inputs = batch.map(({ image, prepared }, i) =>
    i % world.size === world.rank ? (prepared ?? family.prepare(image, options)) : null,
  )
  const gathered = await world.gather(inputs.map((input) => (input ? family.shapeOf(input) : null)))
  const shapes = batch.map((_, i) => gathered.find((of) => of[i] !== null)![i]!)
  return [...new Set(shapes)].map((shape) =>
    batch.flatMap((example, i) => (shapes[i] === shape ? [{ example, input: inputs[i] ?? null }] : [])),
  )
}
