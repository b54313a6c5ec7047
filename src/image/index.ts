// Image: pictures in and out: decoding, Pillow's resampling, tiles, normalised pixel values, region cells, previews.
// May import core. Masks come in as plain runs (the shape of a Mask).
// Start reading at tiles.ts.
export { decodeImage, decodeImageFor, decodeRgba, encodePng, imageInfo } from './decode.ts'
export type { RgbaImage, RgbImage } from './image.ts'
export { weightBits } from './kernel.ts'
export * from './normalise.ts'
export type * from './prepare.ts'
export * from './region.ts'
export * from './resample.ts'
export { crop, tiles } from './tiles.ts'
