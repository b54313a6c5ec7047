// Points for SAM2: a vision-language model answers with points, SAM2 draws the mask they make, and the mask is the reward.
// May import models, data, rewards, mask, image and below.
// Start reading at task.ts; click-geometry.ts has the geometry.

export { makePointScene, type PointScene, sceneSide } from '../../scenes/index.ts'
export * from './answer-config.ts'
export * from './click-geometry.ts'
export * from './config.ts'
export * from './frame.ts'
export { openItem, type PointItem, type PointSetup, releaseItem } from './item.ts'
export { lessonOf } from './lessons.ts'
export type { PointWords } from './multi-turn.ts'
export * from './open-items.ts'
export * from './parse.ts'
export * from './picture.ts'
export * from './points.ts'
export { pointQuestion } from './prompts.ts'
export type * from './record.ts'
export * from './records.ts'
export { askPoints, replyTo } from './reply.ts'
export * from './reward.ts'
export { pointsReward } from './reward-term.ts'
export { coordinatesText, requireAsking, valuesBeside } from './segmenter.ts'
export { PlacePoints } from './task.ts'
