// `roundtrip-rl/models`: open a checkpoint, generate, score with gradients.
export {
  type AskingFamily,
  type DrawnMask,
  type Family,
  type FamilyOptions,
  type FolderReport,
  type Generated,
  type GenerateOptions,
  type GroundedFamily,
  generate,
  type ImageLimits,
  inspectFolder,
  isAsking,
  isGrounded,
  openFamily,
  type PromptIds,
  teacherForceGroups,
} from '../models/index.ts'
