// Scenes: pictures composed from a seed with exact masks and captions; a closed world of shapes for the miniature models.
// May import core, image, mask.
// Start reading at scene.ts.

export { backgroundPhotos } from './composed/backgrounds.ts'
export * from './composed/compose.ts'
export type { Cutout, CutoutSet } from './composed/cutouts.ts'
export * from './composed/emoji.ts'
export * from './composed/looks.ts'
export { readStamp, stampFiles, stampsRoot } from './composed/stamps.ts'
export { type Description, describe, identifies } from './describe.ts'
export * from './neighbours.ts'
export { makeScene, planScene, type Scene, sceneExample } from './scene.ts'
export * from './wording.ts'
export {
  colours,
  hasPosition,
  mainColours,
  type Place,
  positionAt,
  positions,
  relations,
  type SceneObject,
  shapes,
  sizes,
  textures,
} from './world.ts'
