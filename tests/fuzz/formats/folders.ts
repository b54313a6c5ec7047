import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { z } from 'zod'
import { newestValid, readRunState, writeCheckpoint } from '../../../src/checkpoint/index.ts'
import { readRecipe, SettingTable } from '../../../src/config/index.ts'
import { Mismatch, sha256 } from '../../../src/core/index.ts'
import { DataConfig } from '../../../src/data/index.ts'
import { tileGrid } from '../../../src/image/tiles.ts'
import { readQwenVLConfig } from '../../../src/models/qwen_vl/config.ts'
import { readSa2VAConfig } from '../../../src/models/sa2va/config.ts'
import { loadTokenizer } from '../../../src/text/index.ts'
import { addedToken, qwen2TokenizerJson } from '../../../src/text/tokenizer-files.ts'
import { damageBytes } from '../bytes.ts'
import type { Format } from '../format.ts'
import { damageJson, damageValue } from '../json.ts'

const golden = join(import.meta.dirname, '../../fixtures/golden')
const texts = ['a red box', 'ab '.repeat(200), '\u0000\ud800 \u{1f600}', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!']

/** A vocabulary small enough to be damaged often. */
function smallTokenizer(): ReturnType<typeof qwen2TokenizerJson> {
  const letters = [...'abcdefghijklmnopqrstuvwxyz\u0120\u010a']
  const pairs: [string, string][] = [
    ['a', 'b'],
    ['r', 'e'],
    ['re', 'd'],
    ['b', 'o'],
  ]
  const pieces = [...letters, ...pairs.map(([x, y]) => x + y)]
  const vocab = Object.fromEntries(pieces.map((piece, id) => [piece, id]))
  const added = ['<|im_end|>', '<p>', '</p>', '[SEG]'].map((t, i) => addedToken(pieces.length + i, t))
  return qwen2TokenizerJson(vocab, pairs, added)
}

export const tokenizer: Format = {
  name: 'tokenizer',
  async setup() {
    const json = smallTokenizer()
    const settings = { eos_token: '<|im_end|>', added_tokens_decoder: { 31: { content: '[SEG]', special: true } } }
    const vocab = json.model.vocab as Record<string, number>
    const merges = ['#version: 0.2', ...(json.model.merges as string[][]).map((m) => m.join(' '))].join('\n')
    const lists = { 'added_tokens.json': { '<p>': 33 }, 'generation_config.json': { eos_token_id: [32] } }
    return (random) => {
      const files: Record<string, string | Uint8Array> = {}
      for (const [name, value] of Object.entries(lists)) files[name] = JSON.stringify(value)
      const whole = random.below(4) > 0
      if (whole) files['tokenizer.json'] = JSON.stringify(json)
      else Object.assign(files, { 'vocab.json': JSON.stringify(vocab), 'merges.txt': merges })
      files['tokenizer_config.json'] = JSON.stringify(settings)
      const name = whole && random.below(3) > 0 ? 'tokenizer.json' : random.pick(Object.keys(files))
      if (name === 'merges.txt') {
        const { bytes, note } = damageBytes(Buffer.from(merges), random)
        return { files: { ...files, [name]: bytes }, note: `${name}: ${note}` }
      }
      const { text, note } = damageJson(JSON.parse(String(files[name])), random)
      return { files: { ...files, [name]: text }, note: `${name}: ${note}` }
    }
  },
  async read(folder) {
    const found = loadTokenizer(folder)
    let refused = 0
    for (const text of texts) {
      try {
        found.decode(found.encode(text))
      } catch (error) {
        if (!(error instanceof Mismatch)) throw error
        refused++
      }
    }
    return `${found.vocabSize} tokens, ${refused} refused`
  },
}

export const config: Format = {
  name: 'config',
  async setup() {
    const seeds = ['sa2va-tiny', 'qwen2_5_vl-tiny'].map(
      (name) => JSON.parse(readFileSync(join(golden, name, 'config.json'), 'utf8')) as unknown,
    )
    return (random) => {
      const { text, note } = damageJson(random.pick(seeds), random)
      return { files: { 'config.json': text }, note }
    }
  },
  async read(folder) {
    const text = readFileSync(join(folder, 'config.json'), 'utf8')
    if (text.includes('qwen2_5_vl')) return `${readQwenVLConfig(folder).llm.num_hidden_layers} layers`
    const found = readSa2VAConfig(folder)
    const options = { tileSize: found.image_size, minTiles: found.min_dynamic_patch, maxTiles: found.max_dynamic_patch }
    tileGrid(640, 480, options)
    return `${found.llm.num_hidden_layers} layers`
  },
}

const recipeTable = new SettingTable(z.strictObject({ data: DataConfig, name: z.string(), steps: z.int() }))
const recipeSeed = {
  name: 'demo',
  steps: 3,
  data: { seed: 1, shuffle: true, evalFraction: 0.1, refSplit: 'train', difficultyFile: 'scores.jsonl' },
}

export const recipe: Format = {
  name: 'recipe',
  async setup() {
    return (random) => {
      if (random.below(6) === 0) {
        const levels = Array.from({ length: 9 }, (_, i) => `a${i + 1}: &a${i + 1} [${`*a${i},`.repeat(9)}]`)
        return {
          files: { 'r.yaml': `a0: &a0 [x]\n${levels.join('\n')}\nname: *a${random.below(10)}\n` },
          note: 'aliases',
        }
      }
      const { value, note } = damageValue(recipeSeed, random)
      const text = random.below(2) === 0 ? safeYaml(value) : JSON.stringify(value)
      if (random.below(3) > 0) return { files: { 'r.yaml': text }, note }
      const damaged = damageBytes(Buffer.from(`${text} `), random)
      return { files: { 'r.yaml': damaged.bytes }, note: damaged.note }
    }
  },
  async read(folder) {
    return JSON.stringify(readRecipe(join(folder, 'r.yaml'), recipeTable).map(({ path }) => path))
  },
}

/** Values that YAML's writer cannot nest are written as JSON, which YAML reads too. */
function safeYaml(value: unknown): string {
  try {
    return stringify(value)
  } catch {
    return JSON.stringify(value)
  }
}

const stateSeed = {
  version: 1,
  step: 6,
  fingerprint: 'f',
  loader: { version: 1, fingerprint: 'f', seed: 0, rank: 0, world: 1, epoch: 0, position: 3, seen: 3, rejects: {} },
  position: { events: 10, samples: 0 },
  actionScale: 1,
  balance: { loop1: 0.5, loop2: 0.5 },
  norms: { loop1: 0, loop2: 0 },
  buffer: null,
  flat: 0,
}

export const runState: Format = {
  name: 'run-state',
  async setup(folder) {
    const run = join(folder, 'run')
    if (!existsSync(run))
      writeCheckpoint(run, 6, { 'state.json': JSON.stringify(stateSeed), 'ema/a.bin': new Uint8Array(64) })
    const base = 'run/checkpoint_step_6'
    const names = ['manifest.json', 'state.json', 'ema/a.bin']
    const seeds = Object.fromEntries(names.map((n) => [n, readFileSync(join(folder, base, n))]))
    return (random) => {
      const files = Object.fromEntries(names.map((n) => [`${base}/${n}`, seeds[n] as string | Uint8Array]))
      const name = random.pick(names)
      const json = name.endsWith('.json') && random.below(4) > 0
      const { text, note } = json
        ? damageJson(JSON.parse(seeds[name]!.toString()), random)
        : asText(damageBytes(seeds[name]!, random))
      files[`${base}/${name}`] = text
      const mended = name === 'state.json' && random.below(2) === 0
      if (mended) {
        const manifest = JSON.parse(seeds['manifest.json']!.toString()) as { files: Record<string, unknown> }
        manifest.files['state.json'] = { size: Buffer.from(text).length, sha256: sha256(Buffer.from(text)) }
        files[`${base}/manifest.json`] = JSON.stringify(manifest)
      }
      const expect = mended ? undefined : JSON.stringify(stateSeed)
      return { files, note: `${name}: ${note}`, expect }
    }
  },
  async read(folder) {
    const { checkpoint, invalid } = newestValid(join(folder, 'run'))
    if (!checkpoint)
      throw new Mismatch({ where: folder, expected: 'a whole checkpoint', got: invalid[0]?.reason ?? 'none' })
    return JSON.stringify(readRunState(checkpoint.path))
  },
}

function asText({ bytes, note }: { bytes: Buffer; note: string }): { text: string | Uint8Array; note: string } {
  return { text: bytes, note }
}
