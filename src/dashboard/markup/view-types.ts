// What report and live page show: plain data from run folders. Everything here is text and numbers, never markup.
import type { EvalEvent, ReadSample, Shown, WarningEvent } from '../../tracking/index.ts'

export type EvalView = Omit<EvalEvent, 't'>
export type NoticeView = Omit<WarningEvent, 't' | 'samples'>

/** The warnings of one kind: how many, and the steps of the first and the last. */
export interface NoticeKind {
  kind: string
  count: number
  first: number
  last: number
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
