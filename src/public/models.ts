// `roundtrip-rl/models`: open a checkpoint, generate, score with gradients.
export { type Generated, type GenerateOptions, generate, type PromptIds, teacherForceGroups } from '../llm/index.ts'
export {
  type AskingFamily,
  type DrawnMask,
  type Family,
  type FamilyOptions,
  type FolderReport,
  type GroundedFamily,
  type ImageLimits,
  inspectFolder,
  isAsking,
  isGrounded,
  openFamily,
} from '../models/index.ts'
