// Recomputes SAM2's heads with clicks, a box and the mask of an earlier click as prompt. The JSON names the golden folder beside it
// whose weights and image were used.
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { openWeights, readTensors } from '../checkpoint/index.ts'
import type { CheckRow } from '../core/index.ts'
import { openSam2, type Sam2Features, type Sam2Model } from '../sam/index.ts'
import { noGrad, type Tensor, tidy } from '../tensor/index.ts'
import { compareTensor, storedTensor } from './compare.ts'
import { device } from './device.ts'

interface Golden {
  set: string
  cases: { name: string; multimask: boolean }[]
}

export function verifyMaskPrompt(path: string): CheckRow[] {
  const { set, cases } = JSON.parse(readFileSync(path, 'utf8')) as Golden
  const folder = join(dirname(path), set)
  const want = readTensors(openWeights(path.replace(/\.json$/, '.safetensors')), device())
  const image = readTensors(openWeights(join(folder, 'golden.safetensors')), device())
  const { model } = openSam2(folder, { dtype: 'float32', device: device() })
  try {
    return noGrad(() =>
      tidy(() => {
        const features = model.encodeImage(storedTensor(image, 'seg.g_pixel_values'))
        return cases.flatMap((c) => caseRows(c, want, model, features))
      }),
    )
  } finally {
    for (const t of [...want.values(), ...image.values(), ...model.parameters().values()]) t.dispose()
  }
}

function caseRows(
  { name, multimask }: Golden['cases'][number],
  want: ReadonlyMap<string, Tensor>,
  model: Sam2Model,
  features: Sam2Features,
): CheckRow[] {
  const get = (part: string) => storedTensor(want, `${name}.${part}`)
  const flat = get('coords').numbers()
  const points = [Array.from({ length: flat.length / 2 }, (_, i) => flat.slice(2 * i, 2 * i + 2))]
  const prompt = { points, labels: [get('labels').numbers()], maskInput: get('mask_input') }
  const out = model.decode(features, prompt, { multimask })
  const best = out.masks.narrow(1, multimask ? out.ious.argmax({ dim: 1 }).item() : 0, 1)
  return [
    compareTensor(`${name}.low_res`, out.masks, get('low_res')),
    compareTensor(`${name}.ious`, out.ious, get('ious')),
    compareTensor(`${name}.best`, best, get('best')),
    compareTensor(`${name}.obj_score`, out.objScore, get('obj_score')),
  ]
}
