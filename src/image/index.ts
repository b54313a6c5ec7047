// Image: pictures in and out: decoding, Pillow's resampling, tiles, normalised pixel values, region cells, previews.
// May import core. Masks come in as plain runs (the shape of a Mask).
// Start reading at tiles.ts.
export { decodeImage, decodeImageFor, decodeRgba, encodePng, imageInfo } from './decode.ts'
export { checkImage, type RgbaImage, type RgbImage } from './image.ts'
export {
  bfloat16,
  imagenetMean,
  imagenetStd,
  normaliseChw,
  type Precision,
  pixelValues,
  samInput,
} from './normalise.ts'
export type { Preparation, Prepare } from './prepare.ts'
export { outline, overlay, regionGrid } from './region.ts'
export { type Filter, resize } from './resample.ts'
export { crop, type TileOptions, tileCount, tiles } from './tiles.ts'
