// Records for training without captions: `OUT/train.jsonl` has the pictures and masks of DATA with the model's own greedy captions,
// `OUT/eval.jsonl` the held-out records as they are, to measure with.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DataConfig, openSource, splitIndices } from '../src/data/index.ts'
import { encodePng } from '../src/image/index.ts'
import { encodeRle } from '../src/mask/index.ts'
import { openFamily } from '../src/models/index.ts'
import { RunConfig } from '../src/run/index.ts'
import { describeAll, requireGrounded } from '../src/tasks/index.ts'
import { noGrad, setThreads, tidy } from '../src/tensor/index.ts'

const [model, data, out, fraction = '0.35'] = process.argv.slice(2)
if (!model || !data || !out) throw new Error('usage: own-captions MODEL DATA OUT [EVALFRACTION]')
setThreads(1)
mkdirSync(out, { recursive: true })
const family = requireGrounded(openFamily(model, { dtype: 'float32' }))
const config = RunConfig.parse({ model, dataPath: data, output: out, rl: { maxCompletionLength: 24 } })
const source = await openSource(data)
for (const split of ['train', 'eval'] as const) {
  const lines: string[] = []
  for (const i of splitIndices(source, DataConfig.parse({ split, evalFraction: Number(fraction) }), true)) {
    const { id, image, mask, caption } = await source.get(i)
    writeFileSync(join(out, `${i}.png`), await encodePng(image))
    const own = () =>
      describeAll({ family, config }, [{ features: family.encode([family.prepare(image, {})])[0]!, mask }])
    const said = split === 'eval' ? caption : noGrad(() => tidy(own))[0]
    if (said) lines.push(JSON.stringify({ id, image: `${i}.png`, mask: encodeRle(mask), caption: said }))
  }
  writeFileSync(join(out, `${split}.jsonl`), `${lines.join('\n')}\n`)
}
await source.close()
