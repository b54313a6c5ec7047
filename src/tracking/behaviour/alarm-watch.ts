// Alarms while a run trains: the same rules as in the report, over the samples as they are written.
import type { EvalEvent } from '../events.ts'
import { followWhole } from '../follow.ts'
import { type Alarm, alarmsOf, heldOutFalls, rises, windowSteps } from './alarms.ts'
import { raisedAlarms, windowSamples } from './behaviour.ts'
import { type Traits, traitsOf } from './traits.ts'

/** Answers of the first steps of a task, and of its last ones. */
class TaskWindows {
  readonly first: Traits[] = []
  readonly #firstSteps = new Set<number>()
  #last: { step: number; answers: Traits[] }[] = []

  add(answer: Traits): void {
    if (this.#firstSteps.size < windowSteps || this.#firstSteps.has(answer.step)) {
      this.#firstSteps.add(answer.step)
      this.first.push(answer)
      return
    }
    if (this.#last.at(-1)?.step !== answer.step) this.#last.push({ step: answer.step, answers: [] })
    this.#last.at(-1)!.answers.push(answer)
    if (this.#last.length > windowSteps) this.#last.shift()
  }

  get last(): Traits[] {
    return this.#last.length < windowSteps ? [] : this.#last.flatMap(({ answers }) => answers)
  }
}

/** Watches the samples of a run as they are written; every alarm of a task is raised once. */
export class AlarmWatch {
  readonly #windows = new Map<string, TaskWindows>()
  readonly #raised = new Set<string>()
  readonly #evals: EvalEvent[] = []

  /** What an earlier start of the run saw. */
  restore(dir: string): void {
    const run = followWhole(dir)
    for (const sample of windowSamples(run.samples)) this.#add(traitsOf(sample))
    this.#evals.push(...run.events.filter((event) => event.t === 'eval'))
    for (const alarm of raisedAlarms(run)) this.#isNew(alarm)
  }

  /** New alarms after the samples of a step. */
  afterStep(samples: readonly Traits[]): Alarm[] {
    for (const sample of samples) this.#add(sample)
    return [...this.#windows.values()].flatMap(({ first, last }) => alarmsOf(first, last).filter((a) => this.#isNew(a)))
  }

  afterEvaluation(event: EvalEvent): Alarm[] {
    this.#evals.push(event)
    const windows = [...this.#windows.values()].filter(({ last }) => last.length > 0)
    const rewardRises = windows.some(({ first, last }) => rises('reward', first, last))
    const alarm = heldOutFalls(this.#evals, rewardRises)
    return alarm && this.#isNew(alarm) ? [alarm] : []
  }

  #add(answer: Traits): void {
    const known = this.#windows.get(answer.loop) ?? new TaskWindows()
    this.#windows.set(answer.loop, known)
    known.add(answer)
  }

  #isNew({ kind, task }: Pick<Alarm, 'kind' | 'task'>): boolean {
    const key = `${kind} ${task}`
    if (this.#raised.has(key)) return false
    this.#raised.add(key)
    return true
  }
}
