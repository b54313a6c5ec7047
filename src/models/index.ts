// Models: InternViT, SAM2, Sa2VA on top of them and of a language model, and Qwen-VL. Field names are checkpoint names.
// May import llm, nn, text, image, mask, checkpoint and below.
// Start reading at sa2va/model.ts.
export { familyOf, familyOfConfig, type ModelFamily } from './families.ts'
export {
  type AdapterSite,
  type DrawnMask,
  defaultTrainGroups,
  type Family,
  type FolderReport,
  type GroundedFamily,
  type ImageLimits,
  isGrounded,
  isLanguage,
  isPromptable,
  isVqa,
  type LanguageFamily,
  type PromptableFamily,
  type TrainGroup,
  trainGroupNames,
  type VqaFamily,
} from './family.ts'
export { MobileSamFamily } from './mobilesam/family.ts'
export { type ModelSizes, modelSizes } from './model-sizes.ts'
export { type FamilyOptions, inspectFolder, openFamily, promptOf, storedDtype, weightFiles } from './open.ts'
export * from './qwen_vl/index.ts'
export {
  internVit300m,
  internVLConfig,
  qwen2Config,
  type ReleasedName,
  releasedConfig,
  releasedNames,
} from './released-configs.ts'
export * from './sa2va/index.ts'
export * from './sa2va-qwen/index.ts'
