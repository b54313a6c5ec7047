import { Mismatch } from '../core/index.ts'
import type { Native } from './binding.ts'
import { defaultThreads, prepareEnvironment } from './environment.ts'
import { locateAddon } from './locate.ts'

/** Words of a call go out here and results come back here; native/*-calls.cc document each layout. */
export const buffer = new Float64Array(1 << 20)

let loaded: Native | undefined

/** The addon, loaded on first use. One thread of the process may own it. */
export function native(): Native {
  loaded ??= load()
  return loaded
}

function load(): Native {
  prepareEnvironment()
  const path = locateAddon()
  const module: { exports: Partial<Native> } = { exports: {} }
  try {
    process.dlopen(module, path)
  } catch (error) {
    const hint = 'run `npx roundtrip-rl setup` again: the torch it was built for may have moved'
    throw new Mismatch({ where: path, expected: 'a loadable addon', got: error, hint })
  }
  const addon = module.exports as Native
  addon.init(buffer)
  addon.threads(defaultThreads())
  return addon
}
