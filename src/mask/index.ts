// Mask: regions of an image as COCO run lengths: codec, set operations, overlap, distances, clicks, polygons, PNG. Plain data, no tensors.
// May import core.
// Start reading at mask.ts.
export { type Click, type Deepest, deepestPixel, errorCentre } from './click.ts'
export { squaredDistances } from './distance.ts'
export {
  type Mask,
  maskArea,
  maskBox,
  maskFromChanges,
  maskFromDense,
  maskIntersection,
  maskIou,
  maskUnion,
  resizeMaskNearest,
  toDense,
} from './mask.ts'
export { type Labels, labelsFromPng, maskFromPng, maskToPng } from './png.ts'
export { polygonsToMask } from './polygon.ts'
export { decodeRle, encodeRle, maskFromRuns, type Rle } from './rle.ts'
