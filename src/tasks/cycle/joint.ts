// Both round trips ask about the same images: one pass reads each image once for both questions.
import { type PromptIds, type TeacherPass, TrainingLayers, teacherForceGroups } from '../../llm/index.ts'
import type { Densities, JointPass, Task, TaskGroups } from '../../rl/index.ts'
import type { WorkItem } from '../kind.ts'
import { type Cycle, supervisesMasks } from './config.ts'
import type { CycleSample } from './sample.ts'

type Groups = readonly (readonly CycleSample[])[]

/** A round trip apart from its pass: what is read, and the densities from the states. */
export interface CycleTask extends Task {
  reading(items: readonly WorkItem[], groups: Groups): { prompts: PromptIds[]; answers: Int32Array[][] }
  densitiesFrom(pass: TeacherPass, items: readonly WorkItem[], groups: Groups): Densities[]
}

/** Null if a joint pass would read an image for every question all the same, or if supervised masks need the memory. */
export function jointOf(cycle: Cycle): JointPass | null {
  const { model } = cycle.family
  if (supervisesMasks(cycle.config) || !TrainingLayers.of(model.decoder)) return null
  return { with: model, prepare: (parts) => jointPass(cycle, parts as never) }
}

export function jointPass(
  { family, config }: Cycle,
  parts: readonly TaskGroups<CycleTask, WorkItem, CycleSample>[],
): () => Densities[][] {
  const readings = parts.map(({ task, items, groups }) => task.reading(items, groups))
  const [prompts, answers] = [readings.flatMap((r) => r.prompts), readings.flatMap((r) => r.answers)]
  return () => {
    const pass = teacherForceGroups(family.model, prompts, answers, { checkpointing: config.checkpointing })
    let next = 0
    return parts.map(({ task, items, groups }) => {
      next += items.length
      return task.densitiesFrom(pass.part(next - items.length, items.length), items, groups)
    })
  }
}
