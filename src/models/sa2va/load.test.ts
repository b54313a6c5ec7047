import assert from 'node:assert/strict'
import {
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { saveAdapter } from '../../../tests/support/adapter.ts'
import { mergeLora } from '../../../tests/support/merge-lora.ts'
import { fillAdapters, goldenFolder } from '../../../tests/support/sa2va.ts'
import { loadAdapter, openWeights, readAll, writeSafetensors, writeWeights } from '../../checkpoint/index.ts'
import { Mismatch } from '../../core/index.ts'
import { loraTargets } from '../../llm/index.ts'
import { addLora, linears } from '../../nn/index.ts'
import { memory } from '../../tensor/index.ts'
import { exportSa2VA, isVideoOnly, type Loaded, openSa2VA } from './load.ts'

function scratch(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'sa2va-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

/** A copy of the golden folder that may be damaged. */
function copy(t: TestContext): { dir: string; weights: string } {
  const dir = scratch(t)
  cpSync(goldenFolder, dir, { recursive: true })
  return { dir, weights: join(dir, 'model.safetensors') }
}

function free({ model }: Loaded): void {
  for (const t of model.parameters().values()) t.dispose()
}

/** One error of the kind for bad input, which names the file, the field and what was found. */
function refused(dir: string, ...texts: RegExp[]): void {
  assert.throws(
    () => openSa2VA(dir),
    (error) => {
      assert.ok(error instanceof Mismatch, String(error))
      for (const text of texts) assert.match(error.message, text)
      return true
    },
  )
}

/** Rewrites the JSON header of a safetensors file, leaving its data as it is. */
function editHeader(
  path: string,
  edit: (header: Record<string, { dtype: string; shape: number[]; data_offsets: number[] }>) => void,
): void {
  const bytes = readFileSync(path)
  const length = Number(bytes.readBigUInt64LE())
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + length))
  edit(header)
  const text = Buffer.from(JSON.stringify(header))
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(BigInt(text.length))
  writeFileSync(path, Buffer.concat([size, text, bytes.subarray(8 + length)]))
}

test('an oversized header is refused before anything is allocated', (t) => {
  const { dir, weights } = copy(t)
  const bytes = readFileSync(weights)
  bytes.writeBigUInt64LE(1n << 60n)
  writeFileSync(weights, bytes)
  refused(dir, /model\.safetensors: header length: expected at most \d+, got 1152921504606846976/)
})

test('overlapping and outlying ranges of a header are refused by name', (t) => {
  const overlap = copy(t)
  editHeader(overlap.weights, (h) => {
    const last = h['mlp1.1.weight']!
    last.data_offsets = last.data_offsets.map((n) => n - 4)
  })
  refused(overlap.dir, /model\.safetensors: mlp1\.1\.weight/, /overlaps/)
  const outside = copy(t)
  editHeader(outside.weights, (h) => {
    h['mlp1.1.weight']!.data_offsets = [1e12, 1e12 + 4]
  })
  refused(outside.dir, /model\.safetensors: mlp1\.1\.weight\.data_offsets/)
})

test('weights of another dtype or shape, missing and unknown ones are reported by name', (t) => {
  const dtype = copy(t)
  editHeader(dtype.weights, (h) => {
    h['mlp1.1.weight']!.dtype = 'I32'
  })
  refused(dtype.dir, /model\.safetensors: mlp1\.1\.weight: expected a floating-point dtype, got int32/)
  const unknown = copy(t)
  editHeader(unknown.weights, (h) => {
    h['mlp1.1.weight']!.dtype = 'F32X'
  })
  refused(unknown.dir, /mlp1\.1\.weight\.dtype: expected one of .*F32.*, got F32X/)
  const names = copy(t)
  editHeader(names.weights, (h) => {
    h['mlp1.9.weight'] = h['mlp1.1.weight']!
    delete h['mlp1.1.weight']
    h['mlp1.3.weight']!.shape.push(1)
  })
  refused(
    names.dir,
    /1 missing: mlp1\.1\.weight/,
    /1 unexpected: mlp1\.9\.weight/,
    /1 misshapen: mlp1\.3\.weight \[64, 64, 1\] instead of \[64, 64\]/,
  )
})

test('NaN and infinite weights are refused, unless the check is off', (t) => {
  for (const [value, word] of [
    [Number.NaN, 'NaN'],
    [Number.POSITIVE_INFINITY, 'an infinity'],
  ] as const) {
    const { dir, weights } = copy(t)
    const all = readAll(weights)
    const entry = all.get('text_hidden_fcs.0.bias')!
    new DataView(entry.data.buffer, entry.data.byteOffset).setFloat32(8, value, true)
    writeSafetensors(
      weights,
      Array.from(all, ([name, e]) => ({ name, ...e })),
    )
    refused(dir, new RegExp(`model\\.safetensors: text_hidden_fcs\\.0\\.bias: expected finite weights, got ${word}`))
    free(openSa2VA(dir, { checkFinite: false }))
  }
})

test('a cut file is refused', (t) => {
  const { dir, weights } = copy(t)
  truncateSync(weights, readFileSync(weights).length - 100)
  refused(dir, /model\.safetensors: .*the file is cut/)
  truncateSync(weights, 4)
  refused(dir, /model\.safetensors: expected a safetensors file, got 4 bytes/)
})

/** Shards as the hub has them. */
function sharded(t: TestContext): { dir: string; index: string } {
  const { dir, weights } = copy(t)
  const all = readAll(weights)
  unlinkSync(weights)
  writeWeights(
    dir,
    Array.from(all, ([name, e]) => ({ name, ...e })),
    { maxShardBytes: 400_000 },
  )
  return { dir, index: join(dir, 'model.safetensors.index.json') }
}

test('an index that names a missing shard, leaves the folder or lies about a name is refused', (t) => {
  const missing = sharded(t)
  unlinkSync(join(missing.dir, readdirSync(missing.dir).find((n) => n.startsWith('model-00002'))!))
  refused(
    missing.dir,
    /index\.json: model-00002-of-\d+\.safetensors: expected the shard beside the index, got no such file/,
  )
  const outside = sharded(t)
  const edit = (path: string, name: string, shard: string) => {
    const json = JSON.parse(readFileSync(path, 'utf8'))
    json.weight_map[name] = shard
    writeFileSync(path, JSON.stringify(json))
  }
  edit(outside.index, 'mlp1.1.weight', '../../etc/passwd')
  refused(
    outside.dir,
    /weight_map\.mlp1\.1\.weight: expected the name of a file beside the index, got \.\.\/\.\.\/etc\/passwd/,
  )
  const lies = sharded(t)
  edit(lies.index, 'no.such.tensor', 'model-00001-of-00008.safetensors')
  refused(lies.dir, /index\.json: (no\.such\.tensor|model-00001)/)
})

/** A zip with stored entries: what torch.save writes, without its alignment. */
function storedZip(files: Record<string, Uint8Array>): Buffer {
  const parts: Buffer[] = []
  const directory: Buffer[] = []
  let at = 0
  for (const [name, data] of Object.entries(files)) {
    const label = Buffer.from(name)
    const fields = Buffer.alloc(26)
    fields.writeUInt16LE(20)
    fields.writeUInt32LE(crc32(data), 10)
    fields.writeUInt32LE(data.length, 14)
    fields.writeUInt32LE(data.length, 18)
    fields.writeUInt16LE(label.length, 22)
    parts.push(Buffer.from('PK\x03\x04', 'latin1'), fields, label, Buffer.from(data))
    const tail = Buffer.alloc(14)
    tail.writeUInt32LE(at, 10)
    directory.push(Buffer.from('PK\x01\x02\x14\x00', 'latin1'), fields, tail, label)
    at += 30 + label.length + data.length
  }
  const central = Buffer.concat(directory)
  const end = Buffer.alloc(18)
  end.writeUInt16LE(Object.keys(files).length, 4)
  end.writeUInt16LE(Object.keys(files).length, 6)
  end.writeUInt32LE(central.length, 8)
  end.writeUInt32LE(at, 12)
  return Buffer.concat([...parts, central, Buffer.from('PK\x05\x06', 'latin1'), end])
}

function crc32(data: Uint8Array): number {
  let crc = ~0
  for (const byte of data) {
    crc ^= byte
    for (let k = 0; k < 8; k++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1
  }
  return ~crc >>> 0
}

test('a pickle that wants to call something is refused, by what it wants', (t) => {
  const { dir, weights } = copy(t)
  unlinkSync(weights)
  const program = Buffer.from('\x80\x02cposix\nsystem\nX\x08\x00\x00\x00echo hi!\x85R.', 'latin1')
  writeFileSync(
    join(dir, 'pytorch_model.bin'),
    storedZip({ 'archive/data.pkl': program, 'archive/version': Buffer.from('3\n') }),
  )
  refused(dir, /pytorch_model\.bin/, /posix[. ]system/)
})

test('config.json, tokenizer and weights are each missed by name', (t) => {
  const none = scratch(t)
  refused(none, /config\.json: expected the config\.json of a Sa2VA checkpoint, got no such file/)
  const broken = copy(t)
  writeFileSync(join(broken.dir, 'config.json'), '{"model_type": ')
  refused(broken.dir, /config\.json: expected a file of JSON/)
  const noWeights = copy(t)
  unlinkSync(noWeights.weights)
  refused(noWeights.dir, /expected one of model\.safetensors/)
  const noTokenizer = copy(t)
  unlinkSync(join(noTokenizer.dir, 'tokenizer.json'))
  refused(noTokenizer.dir, /tokenizer/)
  const small = copy(t)
  const config = JSON.parse(readFileSync(join(small.dir, 'config.json'), 'utf8'))
  config.llm_config.vocab_size = 400
  writeFileSync(join(small.dir, 'config.json'), JSON.stringify(config))
  refused(small.dir, /tokenizer: expected at most vocab_size 400 tokens, got 497/)
})

test('weights of the stored dtype are mapped, not copied; others are converted', () => {
  const before = memory().bytes
  const mapped = openSa2VA(goldenFolder, { dtype: 'float32' })
  assert.ok(memory().bytes - before < 20_000, `${memory().bytes - before} bytes allocated`)
  const half = openSa2VA(goldenFolder, { dtype: 'bfloat16' })
  const elements = [...half.model.parameters().values()].reduce((n, p) => n + p.numel, 0)
  assert.ok(memory().bytes - before >= 2 * elements)
  free(mapped)
  free(half)
})

test('with shared embeddings a stored head is left unread, and a missing head shares them', (t) => {
  const tied = copy(t)
  const path = join(tied.dir, 'config.json')
  const config = JSON.parse(readFileSync(path, 'utf8'))
  config.llm_config.tie_word_embeddings = true
  writeFileSync(path, JSON.stringify(config))
  const one = openSa2VA(tied.dir)
  assert.ok(!one.model.names().includes('language_model.lm_head.weight'))
  const headless = copy(t)
  const all = readAll(headless.weights)
  all.delete('language_model.lm_head.weight')
  writeSafetensors(
    headless.weights,
    Array.from(all, ([name, e]) => ({ name, ...e })),
  )
  const two = openSa2VA(headless.dir)
  assert.equal(two.cfg.llm.tie_word_embeddings, true)
  free(one)
  free(two)
})

test('exporting an unchanged model gives the same files in every byte, whole or in shards', (t) => {
  for (const dir of [goldenFolder, sharded(t).dir]) {
    const out = join(scratch(t), 'out')
    const loaded = openSa2VA(dir)
    const files = exportSa2VA(loaded, out)
    for (const file of [...files, 'config.json', 'tokenizer.json'])
      assert.ok(readFileSync(join(out, file)).equals(readFileSync(join(dir, file))), file)
    assert.throws(() => exportSa2VA(loaded, out), /expected a folder without a model/)
    free(loaded)
  }
})

test('an export holds the merged adapters in the stored dtype, leaves the model as it was, and keeps video weights', (t) => {
  const source = scratch(t)
  cpSync(goldenFolder, source, { recursive: true })
  const stored = openSa2VA(goldenFolder, { dtype: 'bfloat16' })
  unlinkSync(join(source, 'model.safetensors'))
  const video = readAll(join(goldenFolder, 'model.safetensors'))
  const half = [...stored.model.parameters()].map(([name, p]) => {
    const array = p.array()
    return { name, dtype: 'BF16' as const, shape: p.shape, data: new Uint8Array(array.buffer) }
  })
  const kept = [...video].filter(([name]) => isVideoOnly(name)).map(([name, e]) => ({ name, ...e }))
  writeWeights(source, [...half, ...kept], {})
  free(stored)

  const loaded = openSa2VA(source)
  const targets = loraTargets('Qwen2ForCausalLM')
  addLora(loaded.model.language_model, targets, { rank: 4, alpha: 8, seed: 1 })
  fillAdapters(loaded.model, 9)
  const out = join(scratch(t), 'merged')
  exportSa2VA(loaded, out)
  assert.ok(linears(loaded.model).some(([, l]) => l.lora_A))
  const [from, to] = [openWeights(source), openWeights(out)]
  assert.deepEqual([...to.names].sort(), [...from.names].sort())
  for (const name of from.names) assert.deepEqual([name, to.entry(name).dtype], [name, from.entry(name).dtype])
  mergeLora(loaded.model)
  const again = openSa2VA(out)
  const merged = loaded.model.parameters()
  for (const [name, p] of again.model.parameters()) assert.deepEqual(p.array(), merged.get(name)!.array(), name)
  const changed = 'language_model.model.layers.1.mlp.up_proj.weight'
  assert.notDeepEqual(from.read(changed), to.read(changed))
  for (const { name } of kept) assert.deepEqual(to.read(name), from.read(name))
  free(loaded)
  free(again)
})

test('an adapter that is saved and loaded into a fresh model gives the same weights and switch', (t) => {
  const dir = scratch(t)
  const first = openSa2VA(goldenFolder)
  addLora(first.model.language_model, loraTargets('Qwen2ForCausalLM'), { rank: 4, alpha: 8, dropout: 0.05, seed: 1 })
  saveAdapter(dir, first.model, 'language_model.')
  const second = openSa2VA(goldenFolder)
  const state = loadAdapter(second.model, dir)
  assert.deepEqual(state, { rank: 4, alpha: 8, scale: 2, dropout: 0.05, enabled: true })
  const own = second.model.parameters()
  for (const [name, p] of first.model.parameters()) assert.deepEqual(own.get(name)!.array(), p.array(), name)
  free(first)
  free(second)
})

test('a link out of the folder is followed like any file, as hub caches are made of links', (t) => {
  const { dir, weights } = copy(t)
  const elsewhere = join(scratch(t), 'blob')
  writeFileSync(elsewhere, readFileSync(weights))
  unlinkSync(weights)
  symlinkSync(elsewhere, weights)
  const [linked, plain] = [openSa2VA(dir), openSa2VA(goldenFolder)]
  const own = linked.model.parameters()
  for (const [name, p] of plain.model.parameters()) assert.deepEqual(own.get(name)!.array(), p.array(), name)
  free(linked)
  free(plain)
})
