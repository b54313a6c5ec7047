import type { CheckRow } from '../core/index.ts'
import { verifyBenchmarks } from './benchmarks.ts'
import type { Golden, GoldenKind } from './golden.ts'
import { verifyGrpo, verifyMiscOptim } from './grpo.ts'
import { verifyLora } from './lora.ts'
import { verifyMeteor, verifyPorter } from './meteor.ts'
import { verifyMisc } from './misc.ts'
import { verifyMobileSam } from './mobilesam.ts'
import { verifyPoints } from './points.ts'
import { verifyQwenVL } from './qwen-vl.ts'
import { verifySa2VA } from './sa2va.ts'
import { verifySa2VAQwen } from './sa2va-qwen.ts'
import { verifyMaskPrompt } from './sam2-mask-prompt.ts'
import { verifySentencePiece } from './sentencepiece.ts'

/** What recomputes each kind of golden data. */
const kinds: Record<GoldenKind, (path: string) => CheckRow[] | Promise<CheckRow[]>> = {
  sa2va: verifySa2VA,
  'sa2va-qwen': verifySa2VAQwen,
  qwen2_5_vl: verifyQwenVL,
  qwen3_vl: verifyQwenVL,
  meteor: verifyMeteor,
  porter: verifyPorter,
  grpo: verifyGrpo,
  lora: verifyLora,
  benchmarks: verifyBenchmarks,
  mobilesam: (path) => verifyMobileSam(path),
  points: verifyPoints,
  'sam2-mask-prompt': verifyMaskPrompt,
  sentencepiece: verifySentencePiece,
  misc: async (path) => [...(await verifyMisc(path)), ...verifyMiscOptim(path)],
}

export async function verifyGolden({ path, kind }: Golden): Promise<CheckRow[]> {
  return kinds[kind](path)
}
