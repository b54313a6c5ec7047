// `roundtrip-rl/data`: open a dataset, write a source, work with masks.
export {
  BadRecord,
  type DataOptions,
  type Example,
  type ImageData,
  type Loader,
  type LoaderState,
  makeScenes,
  openLoader,
  openSource,
  type Reason,
  type Region,
  type RegionOptions,
  type Source,
  type SourceModule,
} from '../data/index.ts'
export { encodePng, type RgbImage } from '../image/index.ts'
export { decodeRle, encodeRle, type Mask, maskArea, maskFromDense, maskIou } from '../mask/index.ts'
