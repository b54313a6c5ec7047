// The same GRPO step here and in TRL's GRPOTrainer, on the same libtorch: CPU, float32, two threads. A small random Qwen2.5-VL with LoRA on
// q, k, v, o; K answers of fixed length to a question about an image, one reward, one update.
// Needs a Python with trl, peft and datasets (ROUNDTRIP_PEERS_PYTHON; default python3).
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { JsonObject } from '../src/core/index.ts'
import { packageRoot } from '../src/core/index.ts'
import { encodePng, resize } from '../src/image/index.ts'
import { makePointScene } from '../src/scenes/index.ts'
import { type BenchRow, median, row } from './bench.ts'
import { question } from './peers/digits.ts'
import type { PeerRun, PeerSettings } from './peers/settings.ts'

const python = process.env['ROUNDTRIP_PEERS_PYTHON'] ?? 'python3'
const here = import.meta.dirname
const side = 168
const records = 16
const text = { hidden_size: 256, intermediate_size: 704, num_hidden_layers: 6, num_attention_heads: 8 }
const vision = { depth: 4, hidden_size: 128, intermediate_size: 256, num_heads: 4, out_hidden_size: 256 }

function ask(code: string): string {
  return execFileSync(python, ['-c', code], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
}

/** The torch folder of that Python; both sides use it. */
function peerTorch(): string {
  try {
    return ask('import trl, peft, datasets, torch, os; print(os.path.dirname(torch.__file__))')
  } catch {
    throw new Error(`${python} has no trl, peft, datasets and torch: name one in ROUNDTRIP_PEERS_PYTHON`)
  }
}

/** Model, images and settings for both sides. */
async function writeFolder(folder: string): Promise<void> {
  const policy = join(packageRoot(), 'assets', 'points-miniature', 'policy')
  const small = JSON.parse(readFileSync(join(policy, 'config.json'), 'utf8')) as JsonObject
  const flat = { ...small, ...text, rope_scaling: { type: 'mrope', mrope_section: [4, 6, 6] } }
  const eyes = { ...(small['vision_config'] as JsonObject), ...vision }
  const { vision_config: _, architectures, ...decoder } = flat as JsonObject
  const ids = Object.fromEntries(Object.entries(decoder).filter(([name]) => name.endsWith('token_id')))
  const settings: PeerSettings = {
    steps: 7,
    batch: 4,
    k: 4,
    tokens: 32,
    rank: 16,
    alpha: 32,
    lr: 1e-4,
    threads: 2,
    question,
    config: { architectures, ...ids, text_config: decoder, vision_config: eyes, tie_word_embeddings: true },
    flat: { ...flat, vision_config: eyes },
  }
  writeFileSync(join(folder, 'settings.json'), JSON.stringify(settings))
  mkdirSync(join(folder, 'model'))
  for (const name of ['tokenizer.json', 'preprocessor_config.json'])
    cpSync(join(policy, name), join(folder, 'model', name))
  mkdirSync(join(folder, 'images'))
  const lines: string[] = []
  for (let i = 0; i < records; i++) {
    const name = `images/${String(i).padStart(2, '0')}.png`
    writeFileSync(
      join(folder, name),
      await encodePng(resize(makePointScene(1, i).record.image, side, side, 'bilinear')),
    )
    const mask = { polygons: [[10, 10, 60, 10, 60, 80]], size: [side, side] }
    lines.push(JSON.stringify({ id: `r${i}`, image: name, mask, caption: 'a shape' }))
  }
  writeFileSync(join(folder, 'records.jsonl'), `${lines.join('\n')}\n`)
}

function last(output: string): PeerRun {
  return JSON.parse(output.trim().split('\n').at(-1)!) as PeerRun
}

function peer(what: 'make' | 'train', folder: string): string {
  return execFileSync(python, [join(here, 'peers', 'grpo_trl.py'), what, folder], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, OMP_NUM_THREADS: '2' },
  })
}

function ours(folder: string, torch: string): string {
  const env = { ...process.env, ROUNDTRIP_TORCH: torch, OMP_NUM_THREADS: '2' }
  execFileSync(process.execPath, [join(packageRoot(), 'scripts', 'setup.mjs'), '--quiet'], { stdio: 'inherit', env })
  return execFileSync(process.execPath, ['--import', 'tsx', join(here, 'peers', 'ours.ts'), folder], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
    env,
  })
}

export async function run(): Promise<BenchRow[]> {
  const torch = peerTorch()
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-peers-'))
  try {
    await writeFolder(folder)
    peer('make', folder)
    const [us, them] = [last(ours(folder, torch)), last(peer('train', folder))]
    if (us.tokens !== them.tokens) throw new Error(`answers of ${us.tokens} tokens here and ${them.tokens} there`)
    return [
      row('seconds a step', median(us.seconds), median(them.seconds), 's'),
      row('CPU seconds a step', median(us.processor), median(them.processor), 's'),
      row('peak memory of the process', us.peak / 2 ** 20, them.peak / 2 ** 20, 'MiB'),
    ]
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
