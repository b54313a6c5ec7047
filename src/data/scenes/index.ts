// Scenes: an endless, exactly labelled closed world for the miniature model. Reached through the door of data.
// May import what data may: core, text, image, mask.
// Start reading at scene.ts.
export { type AttributeName, type Description, describe, identifies } from './describe.ts'
export { makePointScene, type PointScene, type ScenePart, sceneSide } from './neighbours.ts'
export {
  makeScene,
  planScene,
  resolveCaption,
  type Scene,
  type SceneOptions,
  type ScenePlan,
  sceneExample,
} from './scene.ts'
export { captionWords, parseCaption, word } from './wording.ts'
export { colours, hasPosition, positions, relations, type SceneObject, shapes, sizes, textures } from './world.ts'
