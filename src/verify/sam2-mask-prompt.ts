// Recomputes SAM2's heads with clicks, a box and the mask of an earlier click as prompt. The JSON names the golden folder beside it
// whose weights and image were used.
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { CheckRow } from '../core/index.ts'
import { openSam2, type Sam2Features, type Sam2Model } from '../sam/index.ts'
import { tidyNoGrad } from '../tensor/index.ts'
import { device } from './device.ts'
import { GoldenTensors, withGolden } from './golden-tensors.ts'

interface Golden {
  set: string
  cases: { name: string; multimask: boolean }[]
}

export function verifyMaskPrompt(path: string): CheckRow[] {
  const { set, cases } = JSON.parse(readFileSync(path, 'utf8')) as Golden
  const folder = join(dirname(path), set)
  const image = new GoldenTensors(join(folder, 'golden.safetensors'))
  const { model } = openSam2(folder, { dtype: 'float32', device: device() })
  try {
    return withGolden(path.replace(/\.json$/, '.safetensors'), model, (want) =>
      tidyNoGrad(() => {
        const features = model.encodeImage(image.get('seg.g_pixel_values'))
        return cases.flatMap((c) => caseRows(c, want, model, features))
      }),
    )
  } finally {
    image.dispose()
  }
}

function caseRows(
  { name, multimask }: Golden['cases'][number],
  want: GoldenTensors,
  model: Sam2Model,
  features: Sam2Features,
): CheckRow[] {
  const get = (part: string) => want.get(`${name}.${part}`)
  const flat = get('coords').numbers()
  const points = [Array.from({ length: flat.length / 2 }, (_, i) => flat.slice(2 * i, 2 * i + 2))]
  const prompt = { points, labels: [get('labels').numbers()], maskInput: get('mask_input') }
  const out = model.decode(features, prompt, { multimask })
  const best = out.masks.narrow(1, multimask ? out.ious.argmax({ dim: 1 }).item() : 0, 1)
  return [
    want.tensor(`${name}.low_res`, out.masks),
    want.tensor(`${name}.ious`, out.ious),
    want.tensor(`${name}.best`, best),
    want.tensor(`${name}.obj_score`, out.objScore),
  ]
}
