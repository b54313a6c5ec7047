// The toy model, made in an engine thread: the engine then is free for the run's own.
import { makeToy } from '../support/runs.ts'

export const toyWork = (dir: string): string => makeToy(dir)
