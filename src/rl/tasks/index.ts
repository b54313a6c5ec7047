export { captionToMask } from './caption-to-mask.ts'
export { maskToCaption } from './mask-to-caption.ts'
export { describeAll, type Found, type Phrase, type Region, segmentAll } from './reading.ts'
export type { Answered, Densities, MaskAction, Rollout, Streams, Task, TaskContext, WorkItem } from './task.ts'
