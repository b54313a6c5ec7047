// What report and live page show: plain data from run folders. Everything here is text and numbers, never markup.
import type { EvalEvent, ReadSample, Shown, TaskName, WarningEvent } from '../../tracking/index.ts'

export type RunState = 'running' | 'ended' | 'quiet'

export interface RunSummary {
  id: string
  name: string
  folder: string
  state: RunState
  /** Why it ended; empty while it has not. */
  reason: string
  step: number
  /** Steps the run is to make; 0 where it does not say. */
  total: number
  samples: number
  /** False while samples are still being indexed. */
  samplesWhole: boolean
  notices: number
  problems: number
  version: number
  samplesVersion: number
  tasks: TaskName[]
  /** How many records have samples. */
  records: number
  rewardParts: string[]
}

export type EvalView = Omit<EvalEvent, 't'>
export type NoticeView = Omit<WarningEvent, 't' | 'samples'>

export interface RunView extends RunSummary {
  facts: [string, string][]
  config: [string, string][]
  environment: [string, string][]
  problemTexts: string[]
  /** Names of the curves: what the seed decides, and what a clock decides. */
  metrics: string[]
  timing: string[]
  evals: EvalView[]
  /** What to know about intervals of few records; empty: nothing. */
  evalNote: string
  noticeKinds: { kind: string; count: number; first: number; last: number }[]
  /** The newest ones, newest first. */
  noticeList: NoticeView[]
  checkpoints: { step: number; name: string }[]
  resumes: number
}

/** A mask as the path of its outline, in its pixels. */
export interface MaskView {
  kind: 'mask'
  by: Shown['by']
  name?: string
  size: readonly [number, number] | null
  path: string
  /** Why nothing is drawn. */
  missing?: string
}

export type ShownView = Exclude<Shown, { kind: 'mask' }> | MaskView

export interface SampleView
  extends Omit<ReadSample, 'shown' | 'text' | 'answer' | 'reference' | 'given' | 'made' | 'madeBy'> {
  shown: ShownView[]
}

export interface SamplesView {
  count: number
  whole: boolean
  samples: SampleView[]
}
