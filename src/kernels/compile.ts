import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { addFolder, atomicWrite, cacheFolder, messageOf, sha256 } from '../core/index.ts'
import { buildRecord, native } from '../engine/index.ts'

interface Compiler {
  path: string
  version: string
}

/** Beside torch where its wheels put it, then wherever the loader looks. */
function* places(): Generator<string> {
  const torch = buildRecord()?.torchPath
  const nvidia = torch ? join(dirname(torch), 'nvidia') : ''
  for (const part of existsSync(nvidia) ? readdirSync(nvidia) : []) {
    const folder = join(nvidia, part, 'lib')
    const files = existsSync(folder) ? readdirSync(folder) : []
    for (const file of files.filter((f) => /^libnvrtc\.so\.\d+$/.test(f))) yield join(folder, file)
  }
  yield* ['libnvrtc.so.13', 'libnvrtc.so.12', 'libnvrtc.so']
}

let found: Compiler | string | undefined

/** NVRTC, or why there is none. */
export function findCompiler(): Compiler | string {
  if (found !== undefined) return found
  const reasons: string[] = []
  for (const path of places()) {
    try {
      found = { path, version: native().nvrtcVersion(path) }
      return found
    } catch (error) {
      reasons.push(messageOf(error))
    }
  }
  found = `no libnvrtc: ${reasons.at(-1)}`
  return found
}

export const sourceOf = (names: readonly string[]): string =>
  names.map((name) => readFileSync(new URL(`${name}.cu`, import.meta.url), 'utf8')).join('\n')

/** Machine code of a source, kept in the cache folder by everything that decides it. */
export function machineCode(compiler: Compiler, source: string, options: readonly string[]): Uint8Array {
  const key = sha256(JSON.stringify([source, options, compiler.version])).slice(0, 32)
  const folder = join(cacheFolder(), 'kernels')
  const path = join(folder, `${key}.cubin`)
  if (existsSync(path)) return readFileSync(path)
  const image = native().nvrtcCompile(compiler.path, source, options.join('\n'))
  addFolder(folder)
  atomicWrite(path, image)
  return image
}
