// Segmenters: SAM2 and MobileSAM. An image is read once, then clicks, boxes and earlier masks become masks.
// May import nn, image, mask, checkpoint and below.
// Start reading at segmenter.ts, then sam2/model.ts.
export * from './mobilesam/index.ts'
export { proposeMasks } from './propose.ts'
export * from './sam2/index.ts'
export { type ClickMask, type ClickPrompt, Segmenter } from './segmenter.ts'
