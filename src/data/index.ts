// Data: datasets on disk become a stream of checked examples (image, mask, caption) in a reproducible order.
// May import core, config, image, mask, checkpoint, scenes.
// Start reading at example.ts, then sources/open.ts and loader.ts.

export { encodePng, type RgbImage } from '../image/index.ts'
export { decodeRle, encodeRle, type Mask, maskArea, maskFromDense, maskIou } from '../mask/index.ts'
export { type GarRow, type GarWriteOptions, writeGarArrow } from './arrow/write.ts'
export { type CacheKey, cachedIndex, packNumbers, unpackNumbers } from './cache.ts'
export { DataConfig, type DataOptions } from './config.ts'
export { toExample } from './decode.ts'
export {
  BadRecord,
  type Example,
  type ImageData,
  type Reason,
  type RecordRules,
  type RecordSource,
  type Region,
  type RegionOptions,
  reasons,
  type Source,
} from './example.ts'
export { type Inspection, inspectSource, renderInspection } from './inspect.ts'
export { type Loader, type LoaderRank, type LoaderState, openLoader } from './loader.ts'
export { type MakeScenesOptions, makeScenes } from './make-scenes.ts'
export { isEval, splitIndices, splitNumber } from './order.ts'
export { readParquet } from './parquet/file.ts'
export { previewPage } from './preview.ts'
export { refImageFolders } from './sources/coco-file.ts'
export { hubSnapshot } from './sources/hub-cache.ts'
export type { SourceModule } from './sources/module.ts'
export { openSource, sourceOf } from './sources/open.ts'
