// Files from outside: hand-written ones, and a few hundred of the fuzzer (npm run fuzz writes more).
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { openWeights, readHeader, readPickle, writeSafetensors } from '../../src/checkpoint/index.ts'
import { openSource } from '../../src/data/index.ts'
import { decodeImage } from '../../src/image/index.ts'
import { runFormat } from '../fuzz/watch.ts'
import { type Bench, refusal } from './bench.ts'
import { quick, type Row, row } from './row.ts'

const fuzzed =
  (...names: string[]) =>
  async (): Promise<string> => {
    const seen: string[] = []
    for (const name of names) {
      const results = await runFormat(name, { n: 150, seed: 64, keep: '' })
      const bad = results.filter((r) => r.outcome !== 'read' && r.outcome !== 'refused')
      assert.deepEqual(bad, [], name)
      const refused = results.filter((r) => r.outcome === 'refused').length
      seen.push(`${name}: ${results.length} files, ${refused} refused with a clear message`)
    }
    return seen.join('; ')
  }

function safetensorsOf(header: string, length = BigInt(header.length)): Buffer {
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(length)
  return Buffer.concat([size, Buffer.from(header), Buffer.alloc(16)])
}

const entry = (more: object) => JSON.stringify({ a: { dtype: 'F32', shape: [4], data_offsets: [0, 16], ...more } })

async function headers(bench: Bench): Promise<string> {
  const path = bench.at('bad.safetensors')
  const bad = [
    safetensorsOf('{', 2n ** 63n),
    safetensorsOf('{', 10n ** 9n),
    safetensorsOf('not json'),
    safetensorsOf('[]'),
    safetensorsOf('{"a": 1}'),
    safetensorsOf(
      '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
    ),
    ...[
      { dtype: 'F99' },
      { dtype: 7 },
      { shape: [-4] },
      { shape: [2 ** 53, 2 ** 53] },
      { shape: 'x' },
      { shape: [5] },
      { shape: [0.5] },
    ].map((m) => safetensorsOf(entry(m))),
    ...[[0, 15], [16, 0], [-16, 0], [0, 1e18], [4, 20], [0], 'x'].map((data_offsets) =>
      safetensorsOf(entry({ data_offsets })),
    ),
    Buffer.alloc(0),
    Buffer.alloc(7),
  ]
  const messages = new Set<string>()
  for (const bytes of bad) {
    writeFileSync(path, bytes)
    messages.add(await refusal(() => readHeader(path), /bad\.safetensors/))
  }
  return `${bad.length} bad headers refused with ${messages.size} different messages`
}

async function indexes(bench: Bench): Promise<string> {
  const shards = ['../x.safetensors', '/etc/passwd', 'missing.safetensors', 'a/b.safetensors', '..', '', 7]
  for (const [i, shard] of shards.entries()) {
    const dir = bench.at(`index-${i}`)
    mkdirSync(dir)
    writeSafetensors(join(dir, 'one.safetensors'), [{ name: 'a', dtype: 'U8', shape: [1], data: new Uint8Array(1) }])
    writeFileSync(join(dir, 'model.safetensors.index.json'), JSON.stringify({ weight_map: { a: shard } }))
    await refusal(() => openWeights(dir), /index\.json|missing/)
  }
  return `${shards.length} shard names that lead out or nowhere refused`
}

/** Protocol 0: GLOBAL, MARK, the argument, TUPLE, REDUCE, STOP. */
const pickled = (global: string, argument: string) => Buffer.from(`c${global.replace('.', '\n')}\n(S'${argument}'\ntR.`)

async function pickles(bench: Bench): Promise<string> {
  const canary = bench.at('canary')
  const globals = ['os.system', 'posix.system', 'builtins.eval', 'builtins.exec', 'subprocess.Popen', 'nt.system']
  for (const global of globals)
    await refusal(
      () => readPickle(pickled(global, `touch ${canary}`), 'payload.pkl'),
      new RegExp(global.split('.')[1]!),
    )
  assert.ok(!existsSync(canary), 'a payload ran')
  return `${globals.length} payloads refused by name, none ran`
}

async function failedDownloads(bench: Bench): Promise<string> {
  const path = bench.at('pointer.safetensors')
  const texts: [string, RegExp][] = [
    ['version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n', /Git LFS pointer/],
    ['<!DOCTYPE html><html>', /web page/],
    ['', /0 bytes/],
  ]
  for (const [text, pattern] of texts) {
    writeFileSync(path, text)
    await refusal(() => openWeights(path), pattern)
  }
  return 'a Git LFS pointer, a web page and an empty file named as such'
}

async function images(bench: Bench): Promise<string> {
  const big = Buffer.from('89504e470d0a1a0a0000000d4948445200007530000075300802000000', 'hex') // 30,000 x 30,000
  const before = process.memoryUsage.rss()
  await refusal(() => decodeImage(Buffer.concat([big, Buffer.alloc(64)])), /./)
  await refusal(() => decodeImage(Buffer.from('ffd8ffe000104a464946', 'hex')), /./)
  symlinkSync('/dev/zero', bench.at('zero.png'))
  const records = bench.at('zero.jsonl')
  writeFileSync(records, `${JSON.stringify({ image: 'zero.png', mask: 'zero.png', caption: 'a' })}\n`)
  const source = await openSource(records)
  await refusal(() => source.get(0), /expected a regular file, got a device/)
  await source.close()
  const grown = (process.memoryUsage.rss() - before) / 2 ** 20
  assert.ok(grown < 300, `${grown} MiB`)
  return `30,000 x 30,000 refused from its header, a device by its kind, memory + ${grown.toFixed(0)} MiB`
}

export const files: readonly Row[] = [
  quick(41, 'headers', 'hand-written safetensors headers', 'outside', headers),
  row(42, 'safetensors', 'damaged safetensors and torch files', 'outside', fuzzed('safetensors', 'torch')),
  quick(43, 'index', 'a weight index that leads out of its folder', 'outside', indexes),
  quick(44, 'pickle', 'pickles with a payload', 'outside', pickles),
  quick(45, 'failed-download', 'what a failed download leaves as weights', 'words', failedDownloads),
  row(46, 'tokenizer', 'damaged tokenizers and configs', 'outside', fuzzed('tokenizer', 'config')),
  row(47, 'arrow', 'damaged Arrow and Parquet shards', 'outside', fuzzed('arrow', 'parquet')),
  quick(48, 'images', 'huge and broken images', 'outside', images),
]
