import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { box, freeFeatures, goldenFolder, picture, tinyConfig } from '../../../tests/support/sa2va.ts'
import { writeWeights } from '../../checkpoint/index.ts'
import { generate } from '../../llm/index.ts'
import { initRandom } from '../../nn/index.ts'
import { tidy } from '../../tensor/index.ts'
import { parseSa2VAConfig } from './config.ts'
import { prepareImage } from './inputs.ts'
import { openSa2VA } from './load.ts'
import { Sa2VA } from './model.ts'

/** The layout of Sa2VA-8B: InternLM2 and a SentencePiece tokenizer; of 26B: also an InternViT with RMSNorm and q/k norms. */
function internLM2Folder(t: TestContext, vision: Record<string, unknown>): string {
  const dir = mkdtempSync(join(tmpdir(), 'internlm2-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  cpSync(join(goldenFolder, '../sentencepiece-tiny/bpe-internlm2'), dir, { recursive: true })
  const llm = { architectures: ['InternLM2ForCausalLM'], vocab_size: 616, bias: false, rms_norm_eps: 1e-5 }
  const raw = tinyConfig({ template: 'internlm2_chat' }, llm, vision)
  writeFileSync(join(dir, 'config.json'), JSON.stringify(raw))
  const model = new Sa2VA(parseSa2VAConfig(raw))
  initRandom(model, { seed: 3, std: 0.2 })
  const entries = Array.from(model.parameters(), ([name, value]) => {
    const array = value.contiguous().array()
    return {
      name,
      dtype: 'F32' as const,
      shape: [...value.shape],
      data: new Uint8Array(array.buffer, array.byteOffset, array.byteLength),
    }
  })
  writeWeights(dir, entries)
  for (const value of model.parameters().values()) value.dispose()
  return dir
}

const largeVision = { norm_type: 'rms_norm', qk_normalization: true, qkv_bias: false }

for (const [name, vision] of [
  ['8B', {}],
  ['26B', largeVision],
] as const) {
  test(`a folder laid out as Sa2VA-${name} opens with its SentencePiece tokenizer, describes and is asked to segment`, (t) => {
    const { model, cfg, prompter } = openSa2VA(internLM2Folder(t, vision), { dtype: 'float32' })
    const features = model.encode(prepareImage(picture(90, 60), cfg))
    const prompt = prompter.describe(features, box(90, 60, 10, 10, 60, 40))
    const shown = prompter.tokenizer.decode(prompt.ids.filter((id) => id !== prompter.tokenizer.idOf('<IMG_CONTEXT>')))
    assert.deepEqual([prompt.ids[0], prompt.ids[1]], [1, prompter.tokenizer.idOf('<|im_start|>')])
    assert.match(shown, /There are 1 part regions in the picture: region1 <vp> <\/vp> \./)
    const ids = tidy(() => {
      const [row] = generate(model, prompter.tokenizer, [prompt], {
        maxNewTokens: 4,
        stopStrings: prompter.template.stopWords,
      })
      return row!.ids
    })
    assert.ok(ids.length > 0 && ids.length <= 4)
    assert.ok(prompter.segment(features, 'the dog').ids.includes(prompter.tokenizer.requireId('<img>')))
    freeFeatures(features)
    for (const value of model.parameters().values()) value.dispose()
  })
}
