// Host: the main thread's side of a run. It starts the engine thread, scores for it, shows its progress and hears signals.
// May import run and everything below. The commands and src/public use it.
// Start reading at start.ts, then hosted.ts.
export { failing, portHost, runHosted, type ScoredSettings } from './hosted.ts'
export { evaluate, requirePaths, runWork, type StartOptions, type SupervisedOptions, sft, train } from './start.ts'
