// Dashboard: a run folder as a page for people: metrics with intervals, curves, rollouts with their masks.
// May import tracking, data, image, mask and core; knows nothing of training.
// Start reading at report.ts, or at server.ts for the live page.

export * from './comparison.ts'
export { isLoopback } from './guard.ts'
export { type ModelCard, modelCard } from './model-card.ts'
export * from './preview.ts'
export * from './report.ts'
export * from './run-card.ts'
export { startWatch, type WatchOptions, type WatchServer } from './server.ts'
