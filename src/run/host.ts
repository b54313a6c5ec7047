// The interface between a run and the thread that started it.
import type { Answer, JudgeCount, JudgeState, ScoredRow } from '../rewards/index.ts'
import type { Interval } from '../tracking/index.ts'

/** One message about the progress of a run. */
export interface Progress {
  kind: 'phase' | 'step' | 'eval' | 'note' | 'warning'
  text?: string
  step?: number
  total?: number
  fields?: Record<string, number>
}

/** Rows of each group, and what the judge has counted so far (calls, cost, failures), if one is asked. */
export interface Scores {
  rows: ScoredRow[][]
  judge?: JudgeState | null
}

/** What a run needs from the thread that keeps the terminal and the network. */
export interface Host {
  /** Null: the run is to end, and this step is not awaited any more. */
  score(task: string, groups: readonly (readonly Answer[])[]): Promise<Scores | null>
  progress(event: Progress): void
  /** Polled between steps: finish the step, save, end. */
  stopping(): boolean
  /** Lets messages of the other thread arrive. */
  yieldToLoop(): Promise<void>
}

/** How a run ended. */
export interface RunResult {
  step: number
  stopped: boolean
  before: Record<string, Interval> | null
  after: Record<string, Interval> | null
  /** Held-out records that both are over. */
  evaluated: number
  checkpoint: string | null
  /** Captions that the judge scored since this start; absent without a judge. */
  judge?: JudgeCount | null
}

/** The part of the host that the loop of a run uses. */
export type LoopHost = Pick<Host, 'progress' | 'stopping' | 'yieldToLoop'>

/** Warnings reach the terminal from every process; progress is that of rank 0. */
export function quiet(host: LoopHost): LoopHost {
  const progress: LoopHost['progress'] = (event) => {
    if (event.kind === 'warning') host.progress(event)
  }
  return { progress, stopping: () => host.stopping(), yieldToLoop: () => host.yieldToLoop() }
}
