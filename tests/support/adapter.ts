// An adapter folder as PEFT writes it, from the adapters of a model: what the reading of such folders is tested with.
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import {
  type AdapterNames,
  type AdapterSettings,
  adapterConfigText,
  languageModelNames,
  type TensorSource,
  tensorSource,
  toFileName,
  writeSafetensors,
} from '../../src/checkpoint/index.ts'
import { atomicWrite, Mismatch } from '../../src/core/index.ts'
import { type Linear, linears, type Module, tensorAt } from '../../src/nn/index.ts'

const factor = /\.(lora_A|lora_B)\.weight$/

function namesUnder(prefix: string): AdapterNames {
  return { ours: prefix, file: 'base_model.model.', adapter: null }
}

/** PEFT's rule: the whole path, or its end after a dot. */
function isNamed(path: string, names: readonly string[]): boolean {
  return names.some((name) => path === name || path.endsWith(`.${name}`))
}

function adapted(model: Module, prefix: string): [string, Linear][] {
  const found = linears(model).filter(([path, linear]) => linear.lora_A && path.startsWith(prefix))
  if (found.length > 0) return found
  throw new Mismatch({ where: 'adapter', field: prefix, expected: 'layers with LoRA below it', got: 'none' })
}

/** `self_attn.q_proj`-like ends where they select the adapted layers and no other, else whole paths. */
function targetModules(model: Module, prefix: string): string[] {
  const inner = (path: string) => path.slice(prefix.length)
  const mine = adapted(model, prefix).map(([path]) => inner(path))
  const ends = [...new Set(mine.map((path) => path.split('.').slice(-2).join('.')))].sort()
  const all = linears(model).filter(([path]) => path.startsWith(prefix))
  const exact = all.every(([path, linear]) => isNamed(inner(path), ends) === (linear.lora_A !== undefined))
  return exact ? ends : mine
}

/** What adapter_config.json says about the adapters of a model, as they are. */
export function adapterSettings(model: Module, prefix: string): AdapterSettings {
  const layers = adapted(model, prefix)
  const { rank, alpha, scale, dropout } = layers[0]![1].adapter!
  const rank_pattern: Record<string, number> = {}
  const alpha_pattern: Record<string, number> = {}
  for (const [path, linear] of layers) {
    const own = linear.adapter!
    if (own.rank !== rank) rank_pattern[path.slice(prefix.length)] = own.rank
    if (own.alpha !== alpha) alpha_pattern[path.slice(prefix.length)] = own.alpha
  }
  return {
    r: rank,
    lora_alpha: alpha,
    lora_dropout: dropout,
    rank_pattern,
    alpha_pattern,
    use_rslora: scale !== alpha / rank,
    target_modules: targetModules(model, prefix),
  }
}

/** Writes the adapters below `prefix` ('language_model.') as PEFT would; settings that are not given come from the model. */
export function saveAdapter(dir: string, model: Module, prefix: string, settings: Partial<AdapterSettings> = {}): void {
  const own = adapterSettings(model, prefix)
  const saved = settings.modules_to_save ?? []
  const slots = model.slots().filter(({ name }) => {
    if (!name.startsWith(prefix)) return false
    return factor.test(name) || isNamed(name.slice(prefix.length).replace(/\.[^.]+$/, ''), saved)
  })
  const entries = slots.map((slot) => tensorSource(slot.name, tensorAt(slot)))
  writeAdapter(dir, { ...own, ...settings }, entries, namesUnder(prefix))
}

/** Writes both files; entries carry our names. */
export function writeAdapter(
  dir: string,
  settings: AdapterSettings,
  entries: Iterable<TensorSource>,
  names: AdapterNames = languageModelNames,
): void {
  mkdirSync(dir, { recursive: true })
  const listed = Array.from(entries, (source) => ({ ...source, name: toFileName(source.name, names) }))
  writeSafetensors(join(dir, 'adapter_model.safetensors'), listed)
  atomicWrite(join(dir, 'adapter_config.json'), adapterConfigText(settings))
}
