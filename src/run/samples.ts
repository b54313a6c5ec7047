// What samples.jsonl keeps of a group: the record, each sample, what was made of it, and how it was scored.
import { encodePng } from '../image/index.ts'
import type { Group, Shown } from '../rl/index.ts'
import type { WorkItem } from '../tasks/index.ts'
import type { MaskRle, RunWriter, Sample } from '../tracking/index.ts'

function shownAs<T>(shown: readonly Shown[], kind: Shown['kind'], by: Shown['by']): T | undefined {
  return shown.find((s) => s.kind === kind && s.by === by)?.value as T | undefined
}

export async function samplesOf(group: Group, step: number, writer: RunWriter): Promise<Sample[]> {
  const { example } = group.item as WorkItem
  const png = await encodePng(example.image)
  const image = writer.image(example.id, () => png)
  return group.samples.map((sample, k) => {
    const shown = group.task.shown(group.item, sample, group.replies[k])
    const answer = shownAs<string>(shown, 'text', 'ema')
    return {
      step,
      loop: group.task.name,
      id: example.id,
      k,
      text: sample.text,
      ...(answer === undefined ? {} : { answer }),
      reference: shownAs<string>(shown, 'text', 'record'),
      given: shownAs<MaskRle>(shown, 'mask', 'record') ?? null,
      made: shownAs<MaskRle>(shown, 'mask', 'policy') ?? null,
      rewards: group.scores[k]!.parts,
      total: group.scores[k]!.total,
      advantage: group.advantages[k]!,
      logp: sample.logps.reduce((a, b) => a + b, 0),
      length: sample.ids.length,
      ...(sample.finished ? {} : { truncated: true }),
      image,
    }
  })
}
