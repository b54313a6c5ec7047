// A frozen encoder as a CUDA graph: a pass over a fixed number of rows is captured once and replayed, which saves thousands of kernel
// launches. The output of an image does not depend on the images that are encoded with it.
import { kernelsOff } from '../kernels/index.ts'
import { type Module, tensorAt } from '../nn/index.ts'
import { CudaGraph, cat, empty, keep, noGrad, type Tensor } from '../tensor/index.ts'

interface Recording {
  /** The weights it reads, and whether kernels were on. */
  of: string
  input: Tensor
  results: readonly Tensor[]
  graph: CudaGraph
}

export class RecordedEncoder {
  readonly #module: Module
  readonly #rows: number
  readonly #pass: (x: Tensor) => readonly Tensor[]
  #recording: Recording | null = null

  /** `pass` reads the weights of `module` and gives tensors with a row for each row of its input; `rows` of them are recorded. */
  constructor(module: Module, rows: number, pass: (x: Tensor) => readonly Tensor[]) {
    this.#module = module
    this.#rows = rows
    this.#pass = pass
  }

  /** Inputs [n, ..] -> what the pass gives for them, [n, ..] each. */
  run(x: Tensor): readonly Tensor[] {
    if (!x.device.startsWith('cuda')) return this.#pass(x)
    const [n, most] = [x.size(0), this.#rows]
    const parts = Array.from({ length: Math.ceil(n / most) }, (_, i) => {
      const count = Math.min(most, n - i * most)
      return this.#part(x.narrow(0, i * most, count))
    })
    if (parts.length === 1) return parts[0]!
    return parts[0]!.map((_, k) => cat(parts.map((part) => part[k]!)))
  }

  /** Fewer rows than half are not worth the whole recording. */
  #part(x: Tensor): readonly Tensor[] {
    const n = x.size(0)
    if (2 * n < this.#rows) return this.#pass(x)
    const { input, graph, results } = this.#recorded(x)
    input.narrow(0, 0, n).copy_(x)
    graph.replay()
    return results.map((t) => t.narrow(0, 0, n).clone())
  }

  #recorded(x: Tensor): Recording {
    const weights = this.#module.slots().map((slot) => tensorAt(slot).handle)
    const of = [kernelsOff(), x.dtype, ...x.shape.slice(1), ...weights].join()
    if (this.#recording?.of === of) return this.#recording
    this.dispose()
    const { device, dtype } = x
    const input = keep(empty([this.#rows, ...x.shape.slice(1)], { device, dtype }))
    input.fill_(0)
    const pass = () => this.#pass(input).map((t) => t.contiguous())
    const { graph, result } = noGrad(() => CudaGraph.capture(pass, { device, warmups: 1 }))
    this.#recording = { of, input, graph, results: result }
    return this.#recording
  }

  dispose(): void {
    if (!this.#recording) return
    const { graph, input, results } = this.#recording
    graph.dispose()
    for (const t of [input, ...results]) t.dispose()
    this.#recording = null
  }
}
