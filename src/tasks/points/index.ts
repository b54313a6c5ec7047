// Points for SAM2: a vision-language model answers with points, SAM2 draws the mask they make, and the mask is the reward.
// May import models, data, rewards, mask, image and below.
// Start reading at task.ts; places.ts has the geometry.

export { makePointScene, type PointScene, type ScenePart, sceneSide } from '../../scenes/index.ts'
export * from './answer-config.ts'
export * from './click-geometry.ts'
export { type Areas, type ComparedRecord, type CompareOptions, compareClicks } from './compare.ts'
export { comparedMetrics } from './compared-metrics.ts'
export { PointsConfig, type PointsInput, resolvePoints, rewardOfPoints } from './config.ts'
export {
  type Box,
  type FrameSize,
  isInside,
  type Point,
  pixelAt,
  printedPoint,
  rescale,
  toModelFrame,
} from './frame.ts'
export { openItem, type PointItem, type PointSetup, releaseItem } from './item.ts'
export { errorCentreCurve, searchBestClick } from './known-clicks.ts'
export { lessonOf } from './lessons.ts'
export { askLooks, densitiesOfLooks, type PointWords, replyToLooks } from './multi-turn.ts'
export { OpenItems } from './open-items.ts'
export { type PointAnswer, parsePointAnswer } from './parse.ts'
export { pointPicture } from './picture.ts'
export { type PointsRunConfig, points, pointsRewardSettings, pointsSettings } from './points.ts'
export { markerText, pointQuestion } from './prompts.ts'
export type { PointRecord } from './record.ts'
export { pointRecord } from './records.ts'
export { askPoints, type PointReply, type PointText, replyTo, sampleOf, scoreReplies } from './reply.ts'
export {
  errorAreas,
  type PointParts,
  type PointSample,
  type PointTurn,
  type RankWindows,
  scorePoints,
  settledRewards,
} from './reward.ts'
export { type PointsAnswer, pointsReward } from './reward-term.ts'
export { coordinatesText, requireAsking } from './segmenter.ts'
export { PlacePoints } from './task.ts'
