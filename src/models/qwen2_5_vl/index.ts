export { parseQwenVLConfig, type QwenVLConfig, readQwenVLConfig } from './config.ts'
export { chatText, type LoadedQwenVL, openQwenVL, questionPrompt } from './load.ts'
export { gridPositions, type QwenFeatures, type QwenPrompt, QwenVL } from './model.ts'
export { type Grid, type PatchedImage, type ProcessorConfig, patchImage, smartResize } from './processor.ts'
