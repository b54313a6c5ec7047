// Model folders, adapters and tokenizers, read from their headers, and exported.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { exportModel, readAdapter } from '../../../src/checkpoint/index.ts'
import { inspectFolder } from '../../../src/models/index.ts'
import type { Module } from '../../../src/nn/index.ts'
import { sizesOfFolder } from '../../../src/run/index.ts'
import { loadTokenizer } from '../../../src/text/index.ts'
import { attackFormat, type Files, filesOf, json } from './attack-folder.ts'

const root = join(import.meta.dirname, '../../..')
const golden = join(root, 'tests/fixtures/golden')
const ofModel = /^(config|tokenizer|preprocessor_config)\.json$|^model.*\.safetensors$/
const models = () => [
  filesOf(join(root, 'assets/miniature'), 'm/', ofModel),
  filesOf(join(golden, 'qwen2_5_vl-tiny'), 'm/', ofModel),
]

function readModel(folder: string): string {
  const { architecture } = inspectFolder(join(folder, 'm'), 16)
  sizesOfFolder(join(folder, 'm'))
  return String(architecture)
}

const extra = {
  'm/README.md': 'a model',
  'm/sub/notes.txt': 'notes',
  'm/sub/deep/a.json': json({ a: 1 }),
  'm/vocab.txt': 'a',
}

function exported(): Files[] {
  const small = filesOf(join(golden, 'lora-tiny'), '', /adapter_model/)['adapter_model.safetensors']!
  return [{ 'm/config.json': json({ a: 1 }), 'm/model.safetensors': small, ...extra }]
}

/** Nothing of another folder may be in what was written. */
function readExport(folder: string): string {
  const out = join(folder, 'out')
  exportModel({ slots: () => [] } as unknown as Module, join(folder, 'm'), out)
  for (const name of readdirSync(out, { recursive: true }).map(String)) {
    if (!existsSync(join(folder, 'm', name))) throw new Error(`${name}: not of the model`)
  }
  if (Object.values(filesOf(out)).some((bytes) => Buffer.from(bytes).includes('FUZZ_CANARY=')))
    throw new Error('a file from outside the folder was exported')
  return `${readdirSync(out).length} files`
}

const texts = [
  'a red box on the left',
  'x'.repeat(2000),
  '\u0000\ud800 \u00e9',
  '<|im_end|>[SEG]<p></p>',
  ' '.repeat(2000),
]
const settings = { eos_token: { content: '<|im_end|>' }, added_tokens_decoder: { 5: { content: 'x', special: true } } }

function readTokens(folder: string): string {
  const tokenizer = loadTokenizer(folder)
  return `${texts.map((text) => tokenizer.decode(tokenizer.encode(text)).length).join()}`
}

function readAdapters(folder: string): string {
  const { config, weights } = readAdapter(folder)
  for (const name of weights.names) weights.read(name)
  return `r ${config.r}`
}

export const attackModels = [
  attackFormat({
    name: 'adapter',
    seeds: () => [filesOf(join(golden, 'lora-tiny'), '', /adapter/)],
    read: readAdapters,
  }),
  attackFormat({ name: 'model', seeds: models, attacks: /config|safetensors/, read: readModel }),
  attackFormat({
    name: 'tokenizer',
    seeds: () =>
      ['assets/miniature', 'tests/fixtures/golden/qwen2_5_vl-tiny'].map((name) => ({
        'tokenizer.json': readFileSync(join(root, name, 'tokenizer.json')),
        'tokenizer_config.json': json(settings),
      })),
    read: readTokens,
  }),
  attackFormat({ name: 'export', seeds: exported, entriesIn: 2, read: readExport, writes: /^out/ }),
]
