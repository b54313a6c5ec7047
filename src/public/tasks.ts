// `roundtrip-rl/tasks`: write a task.
export { streamId } from '../core/index.ts'
export {
  type ActionColumns,
  type Densities,
  type Draw,
  type Item,
  type Json,
  type Sample,
  type Shown,
  sampleStream,
  type Task,
} from '../rl/index.ts'
export {
  type CommonSettings,
  defineTask,
  type Evaluator,
  type RecordScore,
  type TaskDefinition,
  type TaskKind,
  type TaskRewardsPlan,
  type WorkItem,
} from '../tasks/index.ts'
