import type { PromptPositions } from '../../llm/index.ts'
import { type Grid, gridPositions } from '../qwen_vl/index.ts'

interface Placed {
  ids: Int32Array
  features: Grid
  regions: readonly Int32Array[]
}

/** Copied tokens have the positions of their cells; the text continues as if they were not there. */
export function promptPositions(prompt: Placed, imageToken: number, merge: number): PromptPositions {
  const { ids, features, regions } = prompt
  const units = (features.rows * features.columns) / merge ** 2
  const visual = [...ids.keys()].filter((i) => ids[i] === imageToken)
  const copies = visual.slice(units)
  const isCopy = new Set(copies)
  const rest = ids.filter((_, i) => !isCopy.has(i))
  const { axes, next } = gridPositions(rest, [features], imageToken, merge)
  if (copies.length === 0) return { axes, next }
  const copied = regions.flatMap((region) => Array.from(region))
  return { axes: axes.map((axis) => spread(axis, visual[0]!, copies, copied, ids.length)), next }
}

/** Puts the positions of copied units in between: copy k has the position of unit `copied[k]` of the picture. */
function spread(
  axis: Int32Array,
  picture: number,
  copies: readonly number[],
  copied: readonly number[],
  length: number,
): Int32Array {
  const unitAt = new Map(copies.map((i, k) => [i, copied[k]!]))
  const out = new Int32Array(length)
  let from = 0
  for (let i = 0; i < length; i++) {
    const unit = unitAt.get(i)
    out[i] = unit === undefined ? axis[from++]! : axis[picture + unit]!
  }
  return out
}
