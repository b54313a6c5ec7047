import type { RgbImage } from '../../image/index.ts'
import type { Mask } from '../../mask/index.ts'
import type { Box, Point } from './frame.ts'

/** What the task is given: an image, a phrase, the object it means. Pixel indices of the image, columns first. */
export interface PointRecord {
  id: string
  image: RgbImage
  query: string
  /** The object of a composed picture: its pictures are not independent. */
  unit?: string
  /** Empty: the image has no such object. */
  mask: Mask
  /** Both ends inside. Absent: derived from the mask. */
  box?: Box
  points?: readonly Point[]
  /** Several objects that the phrase means. Absent: the one of the mask. */
  objects?: readonly { box: Box; points: readonly Point[] }[]
}
