import type { RgbImage } from './image.ts'

/** What a model makes of an image before any weight is involved, told so that another thread can do it. */
export interface Preparation {
  /** Address of a module that exports `prepare(image, settings)` and loads no engine. */
  readonly module: string
  /** Plain data. */
  readonly settings: unknown
}

/** The function such a module exports; its result is plain data. */
export type Prepare<S = unknown, I = object> = (image: RgbImage, settings: S) => I
