// Mask: regions of an image as COCO run lengths: codec, set operations, overlap, distances, clicks, polygons, PNG. Plain data, no tensors.
// May import core.
// Start reading at mask.ts.
export * from './click.ts'
export * from './distance.ts'
export * from './mask.ts'
export * from './png.ts'
export * from './polygon.ts'
export * from './rle.ts'
