import { openWeights } from '../../checkpoint/index.ts'
import type { FolderReport, WeightGroup } from '../family.ts'
import { readQwenVLConfig } from './config.ts'
import { releasedName } from './load.ts'

const parts: readonly [string, RegExp][] = [
  ['visual', /^visual\./],
  ['language_model', /^(model|lm_head)\./],
]

/** What a Qwen2.5-VL folder holds, from its headers. */
export function inspectQwenVL(dir: string, rank: number): FolderReport {
  const cfg = readQwenVLConfig(dir)
  const folder = openWeights(dir)
  const groups = new Map<string, WeightGroup>()
  let [layers, elements, bytes] = [0, 0, 0]
  for (const stored of folder.names) {
    const name = releasedName(stored)
    const { shape, dtype, byteLength } = folder.entry(stored)
    const size = shape.reduce((a, b) => a * b, 1)
    const key = parts.find(([, pattern]) => pattern.test(name))?.[0] ?? 'other'
    const group = groups.get(key) ?? { name: key, tensors: 0, elements: 0, bytes: 0, trainable: 0, dtypes: {} }
    groups.set(key, group)
    group.tensors++
    group.elements += size
    group.bytes += byteLength
    group.dtypes[dtype] = (group.dtypes[dtype] ?? 0) + 1
    bytes += byteLength
    if (!/^model\.layers\.\d+\.self_attn\.[qkvo]_proj\.weight$/.test(name)) continue
    layers++
    elements += rank * (shape[0]! + shape[1]!)
  }
  const { llm, vision } = cfg
  return {
    path: dir,
    architecture: {
      model: 'Qwen2.5-VL',
      language: `${llm.num_hidden_layers} layers, hidden ${llm.hidden_size}, vocabulary ${llm.vocab_size}`,
      vision: `${vision.depth} blocks, hidden ${vision.hidden_size}, patches of ${vision.patch_size}`,
    },
    files: { count: folder.files.length, bytes },
    groups: [...groups.values()],
    lora: { rank, layers, elements },
    memory: { 'weights in bfloat16': [...groups.values()].reduce((n, g) => n + 2 * g.elements, 0) },
  }
}
