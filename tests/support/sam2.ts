// The miniature SAM2 of the golden set, for tests.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { readAll, type TensorData } from '../../src/checkpoint/safetensors.ts'
import { assert } from '../../src/core/index.ts'
import { type Module, replaceTensor, tensorAt } from '../../src/nn/index.ts'
import { sam2Config } from '../../src/sam/sam2/config.ts'
import { Sam2Model } from '../../src/sam/sam2/model.ts'
import { type DType, type Tensor, tensor } from '../../src/tensor/index.ts'

const folder = join(import.meta.dirname, '../fixtures/golden/sa2va-tiny')
const prefix = 'grounding_encoder.sam2_model.'

function decode({ dtype, shape, data }: TensorData): Tensor {
  const bytes = data.slice().buffer
  if (dtype === 'F32') return tensor(new Float32Array(bytes), shape)
  if (dtype === 'I32') return tensor(new Int32Array(bytes), shape)
  assert(dtype === 'U8', `no reader for ${dtype}`)
  return tensor(new Uint8Array(bytes), shape)
}

const golden = readAll(join(folder, 'golden.safetensors'))

/** A tensor of golden.safetensors. */
export function goldenTensor(name: string): Tensor {
  const found = golden.get(name)
  assert(found, `the golden set has ${name}`)
  return decode(found)
}

export function goldenNumbers(): { grad_norms: Record<string, number>; grad_loss: { bce: number; dice: number } } {
  return JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8'))
}

/** SAM2's tensors of the checkpoint, without their prefix. */
export function checkpointTensors(): Map<string, TensorData> {
  const all = readAll(join(folder, 'model.safetensors'))
  return new Map([...all].filter(([n]) => n.startsWith(prefix)).map(([n, t]) => [n.slice(prefix.length), t]))
}

export function tinyBlock(): Record<string, unknown> {
  return JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')).grounding_encoder_config
}

/** With the golden weights; `changes` may alter what leaves the shapes as they are. */
export function tinyModel(dtype: DType = 'float32', changes: Record<string, unknown> = {}): Sam2Model {
  const model = new Sam2Model(sam2Config({ ...tinyBlock(), ...changes }))
  const stored = checkpointTensors()
  for (const slot of model.slots()) {
    const value = decode(stored.get(slot.name)!)
    assert(String(value.shape) === String(tensorAt(slot).shape), `${slot.name} has the checkpoint's shape`)
    replaceTensor(slot, dtype === 'float32' ? value : value.to(dtype))
  }
  return model
}

export function disposeModel(model: Module): void {
  for (const slot of model.slots()) tensorAt(slot).dispose()
}

/** Largest difference as a share of the largest magnitude expected. */
export function relativeError(got: Tensor, want: Tensor): number {
  assert(String(got.shape) === String(want.shape), `shape [${want.shape}], not [${got.shape}]`)
  return got.sub(want).abs().max().item() / want.abs().max().item()
}
