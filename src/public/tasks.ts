// `roundtrip-rl/tasks`: write a task.
export {
  type ActionColumns,
  type CommonSettings,
  type Densities,
  type Draw,
  type Evaluator,
  type Item,
  type Json,
  type RecordScore,
  type Sample,
  type Shown,
  sampleStream,
  streamId,
  type Task,
  type TaskKind,
  type TaskRewardsPlan,
  type WorkItem,
} from '../tasks/index.ts'
