// Writes the toy model in an engine thread, so that the engine is free for the run.
import { makeToy } from '../support/runs.ts'

export const toyWork = (dir: string): string => makeToy(dir)
