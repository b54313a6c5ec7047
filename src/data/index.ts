// Data: datasets on disk become a stream of checked examples (image, mask, caption) in a reproducible order.
// May import core, config, image, mask, checkpoint, scenes.
// Start reading at example.ts, then sources/open.ts and loader.ts.

export { type GarRow, writeGarArrow } from './arrow/write.ts'
export * from './cache.ts'
export * from './config.ts'
export * from './example.ts'
export * from './inspect.ts'
export * from './loader.ts'
export * from './make-scenes.ts'
export { isEval, splitIndices, splitNumber } from './order.ts'
export { readParquet } from './parquet/file.ts'
export { refImageFolders } from './sources/coco-file.ts'
export { openEmoji } from './sources/composed.ts'
export * from './sources/hub-cache.ts'
export type { SourceModule } from './sources/module.ts'
export * from './sources/open.ts'
