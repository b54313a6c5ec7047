// The same GRPO step here and in TRL's GRPOTrainer, on the same libtorch: a random Qwen2.5-VL with LoRA on q, k, v, o; K answers of fixed
// length to a question about an image, one reward, one update. A small one on the CPU: float32, two threads. With --device cuda the 3B
// shape in bfloat16 and images of 840 x 840, next to TRL without and with gradient checkpointing. ROUNDTRIP_BENCH_STEPS: steps (7; GPU 4).
// Needs a Python with trl, peft and datasets (ROUNDTRIP_PEERS_PYTHON; default python3).
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type JsonObject, packageRoot } from '../src/core/index.ts'
import { encodePng, resize } from '../src/image/index.ts'
import { makePointScene } from '../src/scenes/index.ts'
import { type BenchRow, median, row } from './bench.ts'
import { question } from './peers/digits.ts'
import type { PeerRun, PeerSettings } from './peers/settings.ts'
import { filledTokenizer, policy, policyConfig, qwen3b } from './qwen-3b.ts'

const python = process.env['ROUNDTRIP_PEERS_PYTHON'] ?? 'python3'
const here = import.meta.dirname
const records = 16
const [batch, k] = [4, 4]

/** Sizes of the model, its images and its answers. */
const shapes = {
  cpu: {
    side: 168,
    text: { hidden_size: 256, intermediate_size: 704, num_hidden_layers: 6, num_attention_heads: 8 },
    vision: { depth: 4, hidden_size: 128, intermediate_size: 256, num_heads: 4, out_hidden_size: 256 },
    sections: [4, 6, 6],
    learning: { steps: 7, tokens: 32, rank: 16, alpha: 32, lr: 1e-4 },
  },
  cuda: {
    side: 840,
    ...qwen3b,
    sections: [16, 24, 24],
    learning: { steps: 4, tokens: 128, rank: 128, alpha: 256, lr: 1e-5 },
  },
}
type Device = keyof typeof shapes

/** The torch folder of that Python; both sides use it. */
function peerTorch(device: Device): string {
  const gpu = device === 'cuda' ? 'assert torch.cuda.is_available();' : ''
  try {
    const code = `import trl, peft, datasets, torch, os; ${gpu} print(os.path.dirname(torch.__file__))`
    return execFileSync(python, ['-c', code], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
  } catch {
    const sees = gpu && ', or its torch sees no GPU'
    throw new Error(`${python} has no trl, peft, datasets and torch${sees}: name one in ROUNDTRIP_PEERS_PYTHON`)
  }
}

/** Model, images and settings for both sides. */
async function writeFolder(folder: string, device: Device): Promise<void> {
  const { side, text, vision, sections, learning } = shapes[device]
  const flat: JsonObject = { ...policyConfig, ...text, rope_scaling: { type: 'mrope', mrope_section: sections } }
  const eyes = { ...(policyConfig['vision_config'] as JsonObject), ...vision }
  const { vision_config: _, architectures, ...decoder } = flat
  const ids = Object.fromEntries(Object.entries(decoder).filter(([name]) => name.endsWith('token_id')))
  const settings: PeerSettings = {
    ...learning,
    steps: Number(process.env['ROUNDTRIP_BENCH_STEPS'] ?? learning.steps),
    device,
    batch,
    k,
    threads: 2,
    question,
    config: { architectures, ...ids, text_config: decoder, vision_config: eyes, tie_word_embeddings: true },
    flat: { ...flat, vision_config: eyes },
  }
  writeFileSync(join(folder, 'settings.json'), JSON.stringify(settings))
  mkdirSync(join(folder, 'model'))
  cpSync(join(policy, 'preprocessor_config.json'), join(folder, 'model', 'preprocessor_config.json'))
  writeFileSync(join(folder, 'model', 'tokenizer.json'), filledTokenizer(Number(flat['vocab_size'])))
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

/** Its last lines are results. */
function resultsOf(output: string): PeerRun[] {
  const lines = output.trim().split('\n')
  return lines.filter((line) => line.startsWith('{"seconds"')).map((line) => JSON.parse(line) as PeerRun)
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

/** Our numbers next to those of one run of the peer. */
function rowsOf(us: PeerRun, them: PeerRun, device: Device, how: string): BenchRow[] {
  if (us.tokens !== them.tokens) throw new Error(`answers of ${us.tokens} tokens here and ${them.tokens} there`)
  const both = (of: (run: PeerRun) => number) => [of(us), of(them)] as const
  const memory = device === 'cpu' ? 'peak memory of the process' : 'peak memory of tensors on the GPU'
  return [
    row(`seconds a step${how}`, ...both(({ seconds }) => median(seconds)), 's'),
    row(`CPU seconds a step${how}`, ...both(({ processor }) => median(processor)), 's'),
    row(`${memory}${how}`, ...both(({ peak }) => peak / 2 ** 20), 'MiB'),
    row(`tokens a second${how}`, ...both(({ seconds, tokens }) => (batch * k * tokens) / median(seconds)), '1/s'),
  ]
}

export async function run(word: string): Promise<BenchRow[]> {
  const device = word || 'cpu'
  if (device !== 'cpu' && device !== 'cuda') throw new Error(`--device: expected cpu or cuda, got ${device}`)
  const torch = peerTorch(device)
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-peers-'))
  try {
    await writeFolder(folder, device)
    peer('make', folder)
    const [us] = resultsOf(ours(folder, torch))
    const hows = ['', ', TRL with gradient checkpointing']
    return resultsOf(peer('train', folder)).flatMap((them, i) => rowsOf(us!, them, device, hows[i]!))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
