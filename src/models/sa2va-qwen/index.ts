export { parseSa2VAQwenConfig, readSa2VAQwenConfig, type Sa2VAQwenConfig } from './config.ts'
export { Sa2VAQwenFamily } from './family.ts'
export {
  outlinedQuestion,
  type PrepareOptions,
  prepareQwenImage,
  type QwenGroundedFeatures,
  type QwenGroundedPrompt,
  QwenPrompter,
  type RegionPrompt,
} from './inputs.ts'
export { inspectSa2VAQwen } from './inspect.ts'
export { type LoadedSa2VAQwen, openSa2VAQwen, type QwenOpenOptions } from './load.ts'
export { Sa2VAQwen } from './model.ts'
export type { QwenImageInput } from './prepare.ts'
