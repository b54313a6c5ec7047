// Points for SAM2: a vision-language model answers with points, SAM2 draws the mask they make, and the mask is the reward.
// May import models, data, rewards, mask, image and below.
// Start reading at task.ts; places.ts has the geometry.
export { squaredDistances } from './distance.ts'
export * from './places.ts'
