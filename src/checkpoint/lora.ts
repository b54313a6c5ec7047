// LoRA of a model <-> PEFT's adapter files. Fully trained modules (modules_to_save) travel in the same file under their own names.
import { Mismatch } from '../core/index.ts'
import { Adapter, type AdapterState, type Linear, linears, type Module, replaceTensor, tensorAt } from '../nn/index.ts'
import { type Tensor, tidy } from '../tensor/index.ts'
import { type AdapterConfig, fitAdapter, fromFileName, readAdapter } from './adapter.ts'
import { TensorReader } from './load.ts'
import { missingAndExtra } from './names.ts'

const factor = /\.(lora_A|lora_B)\.weight$/

/**
 * Adds the adapters of a PEFT folder to a model without any, and puts fully saved modules in place. Returns the switch they
 * share. Every tensor of the file must belong to the model, both factors of every layer must be there. Without `dropout` it is that
 * of the adapter's training.
 */
export function loadAdapter(model: Module, dir: string, options: { dropout?: number } = {}): AdapterState {
  const { config, weights: stored } = readAdapter(dir)
  const byPath = new Map(linears(model))
  const old = [...byPath].find(([, linear]) => linear.lora_A)
  if (old) throw new Mismatch({ where: dir, field: old[0], expected: 'a layer without LoRA', got: 'one with it' })
  const { weights, names } = fitAdapter(stored, possibleNames(model))
  const ours = new Map(weights.names.map((file) => [fromFileName(file, names), file]))
  const paths = [...new Set([...ours.keys()].filter((n) => factor.test(n)).map((n) => n.replace(factor, '')))]
  if (paths.length === 0) throw new Mismatch({ where: dir, field: 'tensors', expected: 'LoRA factors', got: 'none' })
  const stateOf = states(dir, config, names.ours, options.dropout ?? config.lora_dropout)
  checkShapes(dir, paths, byPath, ours, weights.shapes(), (path) => stateOf(path).rank)
  const reader = new TensorReader(weights)
  try {
    // a separate copy: the file may change or be deleted; adapters are float32 whatever the base is
    const read = (name: string, { device, dtype: own }: Tensor, dtype = own) =>
      tidy(() => reader.read(ours.get(name)!).to(dtype, { copy: true }).to(device))
    for (const slot of model.slots()) if (ours.has(slot.name)) replaceTensor(slot, read(slot.name, tensorAt(slot)))
    for (const path of paths) {
      const linear = byPath.get(path)!
      linear.lora_A = new Adapter(read(`${path}.lora_A.weight`, linear.weight, 'float32'))
      linear.lora_B = new Adapter(read(`${path}.lora_B.weight`, linear.weight, 'float32'))
      linear.setAdapter(stateOf(path))
    }
  } finally {
    reader.close()
  }
  return stateOf('')
}

function possibleNames(model: Module): Set<string> {
  const names = new Set(model.names())
  for (const [path] of linears(model)) for (const part of ['A', 'B']) names.add(`${path}.lora_${part}.weight`)
  return names
}

/**
 * A key of rank_pattern or alpha_pattern. PEFT takes it for a regular expression; what it writes itself and documents is a name with
 * dots, also as `\.`, with `^` in front for a whole path or `$` at the end. Nothing else is accepted: a file could hold an expression
 * that never ends. `whole`: the whole path, not its end after a dot.
 */
function patternKey(where: string, field: string, key: string): { name: string; whole: boolean } {
  const found = /^(\^?)((?:[\w-]|\\?\.)+)(\$?)$/.exec(key.length <= 1024 ? key : '')
  if (found) return { whole: found[1] !== '', name: found[2]!.replaceAll('\\.', '.') }
  const expected = 'names of layers such as q_proj, self_attn.q_proj or ^model.layers.0.self_attn.q_proj'
  const hint = 'regular expressions are not read; write the names out'
  throw new Mismatch({ where, field, expected, got: key.slice(0, 80), hint })
}

/** PEFT's rule: the first key that is the path or, after a dot, its end. */
function byPattern(where: string, field: string, table: Readonly<Record<string, number>>) {
  const keys = Object.entries(table).map(([key, value]) => ({ ...patternKey(where, field, key), value }))
  return (path: string, usual: number): number =>
    keys.find(({ name, whole }) => path === name || (!whole && path.endsWith(`.${name}`)))?.value ?? usual
}

/** One switch for all; layers whose rank or alpha differs keep their own numbers under the same switch. */
function states(where: string, config: AdapterConfig, prefix: string, dropout: number): (path: string) => AdapterState {
  const make = (rank: number, alpha: number): AdapterState => {
    return { rank, alpha, scale: alpha / (config.use_rslora ? Math.sqrt(rank) : rank), dropout, enabled: true }
  }
  const shared = make(config.r, config.lora_alpha)
  const rankOf = byPattern(where, 'rank_pattern', config.rank_pattern)
  const alphaOf = byPattern(where, 'alpha_pattern', config.alpha_pattern)
  return (path) => {
    const inner = path.slice(prefix.length)
    const [rank, alpha] = [rankOf(inner, config.r), alphaOf(inner, config.lora_alpha)]
    return rank === shared.rank && alpha === shared.alpha ? shared : withSharedSwitch(shared, make(rank, alpha))
  }
}

/** `own` with its rank and alpha, but the switch and the dropout of `shared`, which a run changes. */
function withSharedSwitch(shared: AdapterState, own: AdapterState): AdapterState {
  const through = <K extends 'enabled' | 'dropout'>(key: K): PropertyDescriptor => ({
    enumerable: true,
    get: () => shared[key],
    set: (value: AdapterState[K]) => {
      shared[key] = value
    },
  })
  return Object.defineProperties(own, { enabled: through('enabled'), dropout: through('dropout') })
}

function checkShapes(
  where: string,
  paths: readonly string[],
  linear: ReadonlyMap<string, Linear>,
  ours: ReadonlyMap<string, string>,
  shapes: ReadonlyMap<string, readonly number[]>,
  rank: (path: string) => number,
): void {
  const expected = new Map<string, readonly number[]>()
  for (const path of paths) {
    const { inFeatures, weight } = linear.get(path)!
    expected.set(`${path}.lora_A.weight`, [rank(path), inFeatures])
    expected.set(`${path}.lora_B.weight`, [weight.size(0), rank(path)])
  }
  const have = new Map([...ours].filter(([name]) => factor.test(name)).map(([name, file]) => [name, shapes.get(file)!]))
  const got = missingAndExtra(expected, have)
  if (got)
    throw new Mismatch({ where, field: 'tensors', expected: `two factors for each of ${paths.length} layers`, got })
}
