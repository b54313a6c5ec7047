import { Mismatch } from '../../../src/core/index.ts'
import type { Format } from '../format.ts'
import { arrow } from './arrow.ts'
import { attackData } from './attack-data.ts'
import { attackModels } from './attack-models.ts'
import { attackRuns } from './attack-runs.ts'
import { config, recipe, runState, tokenizer } from './folders.ts'
import { jsonl } from './jsonl.ts'
import { judgeReply } from './judge-reply.ts'
import { parquet } from './parquet.ts'
import { jpeg, png } from './pictures.ts'
import { planted } from './planted.ts'
import { refcoco } from './refcoco.ts'
import { rle } from './rle.ts'
import { pointsAnswer, sentencePiece } from './texts.ts'
import { adapter, safetensors, torch } from './weights.ts'

/** Every format of `npm run fuzz`, in the order of its table. */
export const formats: readonly Format[] = [
  arrow,
  parquet,
  jsonl,
  rle,
  png,
  jpeg,
  safetensors,
  torch,
  tokenizer,
  sentencePiece,
  config,
  adapter,
  recipe,
  runState,
  judgeReply,
  pointsAnswer,
  refcoco,
]

/** Other mutators over whole folders: `npm run fuzz -- attack`. */
export const attacks: readonly Format[] = [...attackRuns, ...attackData, ...attackModels]

export function formatNamed(name: string): Format {
  const found = [...formats, ...attacks, planted].find((format) => format.name === name)
  if (found) return found
  throw new Mismatch({ where: 'fuzz', field: 'format', expected: formats.map((f) => f.name).join(', '), got: name })
}
