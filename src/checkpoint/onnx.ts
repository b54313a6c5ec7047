// The tensors of an ONNX file: initializers and constants, and which nodes read them. Nothing is executed.
import { readFileSync } from 'node:fs'
import { Mismatch, protoBytes, protoFields, protoInt, protoText } from '../core/index.ts'

export interface OnnxTensor {
  readonly shape: readonly number[]
  readonly values: Float32Array
}

/** Where an initializer is used: the node's name and type, and the index of the input. */
interface OnnxUse {
  readonly node: string
  readonly op: string
  readonly input: number
}

export interface OnnxFile {
  readonly path: string
  readonly initializers: ReadonlyMap<string, OnnxTensor>
  /** Float tensors of Constant nodes, by the node's name. */
  readonly constants: ReadonlyMap<string, OnnxTensor>
  /** The first use of each initializer. */
  readonly uses: ReadonlyMap<string, OnnxUse>
}

const float32 = 1
const field = { graph: 7, node: 1, initializer: 5 } as const

/** Reads float32 tensors with inline data; other types, sizes that disagree and external data are errors. */
export function readOnnx(path: string): OnnxFile {
  const initializers = new Map<string, OnnxTensor>()
  const constants = new Map<string, OnnxTensor>()
  const uses = new Map<string, OnnxUse>()
  for (const part of protoFields(graphOf(path), path)) {
    if (part.number === field.initializer) {
      const { name, tensor } = readTensor(protoBytes(part, path, 'initializer'), path)
      if (!tensor) throw new Mismatch({ where: path, field: name, expected: 'a float32 tensor', got: 'another type' })
      initializers.set(name, tensor)
    } else if (part.number === field.node) {
      const node = readNode(protoBytes(part, path, 'node'), path)
      if (node.op === 'Constant' && node.value) constants.set(node.name, node.value)
      node.inputs.forEach((name, input) => {
        if (!uses.has(name)) uses.set(name, { node: node.name, op: node.op, input })
      })
    }
  }
  return { path, initializers, constants, uses }
}

function graphOf(path: string): Uint8Array {
  for (const part of protoFields(readFileSync(path), path))
    if (part.number === field.graph) return protoBytes(part, path, 'graph')
  throw new Mismatch({ where: path, field: 'graph', expected: 'an ONNX model', got: 'no graph' })
}

interface OnnxNode {
  name: string
  op: string
  inputs: string[]
  value: OnnxTensor | null
}

function readNode(bytes: Uint8Array, where: string): OnnxNode {
  const node: OnnxNode = { name: '', op: '', inputs: [], value: null }
  for (const part of protoFields(bytes, where)) {
    if (part.number === 1) node.inputs.push(protoText(part, where, 'input'))
    else if (part.number === 3) node.name = protoText(part, where, 'name')
    else if (part.number === 4) node.op = protoText(part, where, 'op_type')
    else if (part.number === 5) node.value ??= readAttribute(protoBytes(part, where, 'attribute'), where)
  }
  return node
}

/** The float32 tensor of an attribute, or null. */
function readAttribute(bytes: Uint8Array, where: string): OnnxTensor | null {
  for (const part of protoFields(bytes, where))
    if (part.number === 5) return readTensor(protoBytes(part, where, 't'), where).tensor
  return null
}

/** `tensor` is null if the data type is not float32. */
function readTensor(bytes: Uint8Array, where: string): { name: string; tensor: OnnxTensor | null } {
  const shape: number[] = []
  let name = ''
  let type = 0
  let raw: Uint8Array | null = null
  for (const part of protoFields(bytes, where)) {
    if (part.number === 1) shape.push(...dimsOf(part.bytes, part.value, part.wire === 'bytes', where))
    else if (part.number === 2) type = protoInt(part, where, 'data_type')
    else if (part.number === 8) name = protoText(part, where, 'name')
    else if (part.number === 9) raw = protoBytes(part, where, 'raw_data')
    else if (part.number === 13 || (part.number === 14 && part.value !== 0))
      throw new Mismatch({ where, field: name, expected: 'data inside the file', got: 'external data' })
  }
  if (type !== float32) return { name, tensor: null }
  const count = shape.reduce((a, b) => a * b, 1)
  if (raw?.length !== 4 * count)
    throw new Mismatch({ where, field: name, expected: `${4 * count} bytes`, got: raw?.length ?? 'none' })
  return { name, tensor: { shape, values: new Float32Array(Uint8Array.from(raw).buffer) } }
}

/** A dimension, or several packed into one field. */
function dimsOf(bytes: Uint8Array, value: number, packed: boolean, where: string): number[] {
  if (!packed) return [value]
  const dims: number[] = []
  let dim = 0
  let scale = 1
  for (const byte of bytes) {
    dim += (byte & 0x7f) * scale
    scale *= 128
    if (byte >= 0x80) continue
    dims.push(dim)
    dim = 0
    scale = 1
  }
  if (scale !== 1) throw new Mismatch({ where, field: 'dims', expected: 'whole varints', got: 'a torn one' })
  return dims
}
