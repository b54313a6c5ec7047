export {
  checkSections,
  layerList,
  parseQwenVLConfig,
  type QwenVisionConfig,
  type QwenVLConfig,
  readQwenVision,
  readQwenVLConfig,
  readVisionSizes,
  wholeNumber,
} from './config.ts'
export { QwenVLFamily } from './family.ts'
export { inspectQwenVL } from './inspect.ts'
export { chatText, type LoadedQwenVL, openQwenVL, questionPrompt } from './load.ts'
export { gridPositions, type QwenFeatures, type QwenPrompt, QwenVL } from './model.ts'
export {
  firstResize,
  firstSize,
  type Grid,
  type PatchedImage,
  type ProcessorConfig,
  patchImage,
  patchOrder,
  patchResized,
  readProcessorConfig,
  resizeForPatches,
  smartResize,
} from './processor.ts'
export {
  indices,
  patchRotation,
  QwenVision,
  type Segments,
  segmentsOf,
  VisionAttention,
  type Watch,
  windowOrder,
} from './vision.ts'
