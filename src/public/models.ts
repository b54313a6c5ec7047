// `roundtrip-rl/models`: open a checkpoint, generate, score with gradients.
export { type Generated, type GenerateOptions, generate, type PromptIds, teacherForceGroups } from '../llm/index.ts'
export {
  type DrawnMask,
  type Family,
  type FamilyOptions,
  type FolderReport,
  type GroundedFamily,
  type ImageLimits,
  inspectFolder,
  isGrounded,
  isVqa,
  openFamily,
  type VqaFamily,
} from '../models/index.ts'
