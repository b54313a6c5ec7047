export { type ChatOptions, chatText, coordsOf, renderChat, systemTurn } from './chat.ts'
export {
  objectAt,
  parseQwenParts,
  parseQwenVLConfig,
  type QwenParts,
  type QwenVLConfig,
  qwenBase,
  readConfigFile,
  readQwenVLConfig,
} from './config.ts'
export { QwenVLFamily } from './family.ts'
export { generations, type QwenBase, type VisionOutput, type VisionTower, type Watch } from './generations.ts'
export { architectureOfQwen, inspectQwenVL } from './inspect.ts'
export { besideWeights, type LoadedQwenVL, openQwenVL, questionPrompt, readProcessor, releasedName } from './load.ts'
export { gridPositions, imageInputs, lookAt, type QwenFeatures, type QwenPrompt, QwenVL } from './model.ts'
export {
  firstResize,
  firstSize,
  type Grid,
  type PatchedImage,
  type ProcessorConfig,
  patchImage,
  patchResized,
  readProcessorConfig,
  resizeForPatches,
  smartResize,
} from './processor.ts'
export { windowOrder } from './vision-2_5.ts'
export { type QwenVisionConfig, wholeNumber } from './vision-config.ts'
