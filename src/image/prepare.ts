import type { RgbImage } from './image.ts'

/** How a model preprocesses an image, as plain data so that another thread can do it. */
export interface Preparation {
  /** Address of a module that exports `prepare(image, settings)` and loads no engine. */
  readonly module: string
  /** Plain data. */
  readonly settings: unknown
}

/** The function such a module exports; its result is plain data. */
export type Prepare<S = unknown, I = object> = (image: RgbImage, settings: S) => I
