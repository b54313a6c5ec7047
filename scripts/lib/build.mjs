// Compiles native/*.cc against a torch with plain compiler calls. Object files are cached by content; the addon is renamed into place.
// Most of the compile time is torch's headers, so several sources are compiled as one unit.
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { withLock } from './lock.mjs'
import { nodeApiHeaders } from './packages.mjs'
import { capture, runAsync, SetupError, seconds } from './progress.mjs'
import { cacheFolder, fingerprint, hashFiles, nativeFiles, root, sha256 } from './record.mjs'

const native = join(root, 'native')
const objectsKept = 14 * 24 * 3600_000 // ms since last use

/** CXX may have arguments, as for make: `ccache g++`. A path with a space is one word if the file exists. */
const wordsOf = (text) => (existsSync(text) ? [text] : text.trim().split(/\s+/))

/** The compiler's words and what it calls itself, or null. */
export function findCompiler(env = process.env) {
  const names = env.CXX?.trim() ? [wordsOf(env.CXX)] : [['c++'], ['g++'], ['clang++']]
  for (const words of names) {
    const { ok, stdout } = capture(words[0], [...words.slice(1), '--version'])
    if (ok) return { words, version: stdout.split('\n')[0] }
  }
  return null
}

const runCompiler = ({ words: [program, ...first] }, args) => runAsync(program, [...first, ...args])

/** Old wheels use the old string ABI: their c10 symbols contain no __cxx11. */
export function usesCxx11Abi(lib) {
  return /_ZNK?3c10[A-Za-z0-9_]*__cxx11/.test(readFileSync(join(lib, 'libc10.so'), 'latin1'))
}

// torch states the language it needs in one of these
const standardHeaders = ['c10/util/C++17.h', 'torch/csrc/api/include/torch/all.h', 'torch/headeronly/macros/Macros.h']

function neededStandard(torch) {
  const demands = (path) =>
    existsSync(path) && /__cplusplus\s*<\s*20[2-9]\d{3}L|C\+\+20 or later/.test(readFileSync(path, 'utf8'))
  return standardHeaders.some((name) => demands(join(torch.include[0], name))) ? 'c++20' : 'c++17'
}

/** Everything that determines the build. */
export function plan(torch, cuda, compiler, std = neededStandard(torch)) {
  const abi = usesCxx11Abi(torch.lib)
  const defines = ['USE_DISTRIBUTED', 'USE_C10D_GLOO', `_GLIBCXX_USE_CXX11_ABI=${abi ? 1 : 0}`]
  if (cuda.cuda) defines.push('ROUNDTRIP_CUDA')
  if (cuda.nccl) defines.push('USE_C10D_NCCL')
  const system = [...torch.include, ...cuda.include].filter((folder) => folder !== '/usr/include')
  const flags = ['-O2', `-std=${std}`, '-fPIC', ...defines.map((name) => `-D${name}`)]
  const include = [`-I${native}`, '-isystem', nodeApiHeaders(), ...system.flatMap((folder) => ['-isystem', folder])]
  const libraries = ['-ltorch', '-ltorch_cpu', '-lc10', ...(cuda.cuda ? ['-ltorch_cuda', '-lc10_cuda'] : [])]
  // RPATH, not RUNPATH: it has priority over an LD_LIBRARY_PATH with another torch
  const link = [
    '-shared',
    `-L${torch.lib}`,
    `-Wl,--disable-new-dtags,-rpath,${torch.lib}`,
    '-Wl,-z,now,--no-as-needed',
    ...libraries,
  ]
  return { torch, cuda: cuda.cuda, nccl: cuda.nccl, abi, std, flags, include, link, compiler }
}

/** Compiled alone: includes no header of torch and has its own flags. */
const loops = 'kernels.cc'
const loopFlags = ['-O3', '-fno-math-errno', '-fno-trapping-math']
/** More units are not faster: each compiles torch's headers again. */
const maxUnits = 4

export const library = (torch) => fingerprint(join(torch.lib, 'libtorch_cpu.so'))

function identity({ torch, flags, link, compiler, cuda, include }) {
  const api = include.filter((word) => word.startsWith('/') && word !== nodeApiHeaders())
  return JSON.stringify([torch.version, torch.path, library(torch).size, flags, link, compiler.version, cuda, api])
}

function sources() {
  const names = nativeFiles().filter((path) => path.endsWith('.cc') && !path.includes('/'))
  if (names.length === 0) throw new SetupError(`no C++ sources in ${native}`)
  return names.map((name) => ({ name, size: statSync(join(native, name)).size }))
}

export const keyOf = (build, sources) => sha256(identity(build) + sources).slice(0, 20)

const firstError = (log) => {
  const lines = log.split('\n')
  return (
    lines.find((line) => /\berror: |undefined reference|cannot find -l|: not found|Killed/.test(line)) ??
    lines[0] ??
    ''
  ).trim()
}

function fail(build, key, what, log) {
  const path = join(cacheFolder(), 'native', `${key}.failed.log`)
  writeFileSync(path, log)
  const killed = /Killed|cc1plus.*signal/.test(log) ? '\n  the compiler was killed: probably too little memory' : ''
  const error = new SetupError(`${what} failed: ${firstError(log)}${killed}\n  full log: ${path}`)
  error.wantsCxx20 = build.std === 'c++17' && /C\+\+20|\+\+20|'?(concept|requires)'? does not name/.test(log)
  throw error
}

/**
 * Distributes sources over as many units as cores: the largest source first, each into the smallest unit; sorted by name in a unit.
 * Sources must not share names of unnamed namespaces or macros (scripts/lib/units.test.mjs).
 */
export function unitsOf(sources, cores) {
  const joined = sources
    .filter(({ name }) => name !== loops)
    .sort((a, b) => b.size - a.size || (a.name < b.name ? -1 : 1))
  const units = Array.from({ length: Math.min(cores, maxUnits, joined.length) }, () => ({ names: [], size: 0 }))
  for (const { name, size } of joined) {
    const smallest = units.reduce((a, b) => (b.size < a.size ? b : a))
    smallest.names.push(name)
    smallest.size += size
  }
  const alone = sources.filter(({ name }) => name === loops).map(({ name }) => ({ names: [name], flags: loopFlags }))
  return [...units.map(({ names }) => ({ names: names.sort(), flags: [] })), ...alone]
}

function objectPath(build, { names, flags }, headers) {
  const hash = sha256(identity(build) + flags.join() + headers + hashFiles(native, names))
  return join(cacheFolder(), 'native', 'objects', `${hash.slice(0, 32)}.o`)
}

/** Compiles one unit: a file that includes its sources. */
async function compile(build, { names, flags, object }) {
  const draft = `${object}.${process.pid}`
  writeFileSync(`${draft}.cc`, names.map((name) => `#include "${name}"\n`).join(''))
  const args = [...build.flags, ...flags, ...build.include, '-c', `${draft}.cc`, '-o', draft]
  try {
    const done = await runCompiler(build.compiler, args)
    if (done.ok) renameSync(draft, object)
    return { ...done, output: `$ ${[...build.compiler.words, ...args].join(' ')}\n${done.output}` }
  } finally {
    rmSync(`${draft}.cc`, { force: true })
  }
}

function dropOldObjects(folder) {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name)
    const used = statSync(path, { throwIfNoEntry: false })?.mtimeMs
    if (used !== undefined && Date.now() - used > objectsKept) rmSync(path, { force: true })
  }
}

/** Compiles the units that are not cached, on all cores. */
async function compileAll(build, key, { say }) {
  const headers = hashFiles(
    native,
    nativeFiles().filter((path) => !path.endsWith('.cc')),
  )
  const cores = availableParallelism()
  const units = unitsOf(sources(), cores).map((unit) => ({ ...unit, object: objectPath(build, unit, headers) }))
  mkdirSync(join(cacheFolder(), 'native', 'objects'), { recursive: true })
  const queue = units.filter(({ object }) => !existsSync(object))
  const total = queue.length
  const logs = []
  let finished = 0
  const worker = async () => {
    for (let next = queue.shift(); next; next = queue.shift()) {
      const start = performance.now()
      const done = await compile(build, next)
      logs.push(done.output)
      if (!done.ok) {
        queue.length = 0
        return { names: next.names, log: done.output }
      }
      say(`  [${++finished}/${total}] ${next.names.join(' ')}  ${seconds(start)}`)
    }
  }
  const failures = await Promise.all(Array.from({ length: Math.min(total, cores) }, worker))
  const failed = failures.find(Boolean)
  if (failed) fail(build, key, `compiling ${failed.names.join(' ')}`, failed.log)
  const now = new Date()
  for (const { object } of units) utimesSync(object, now, now)
  return { objects: units.map(({ object }) => object), log: logs.join('\n') }
}

// loading the addon detects undefined symbols and missing libraries
async function tryLoading(build, key, addon) {
  const env = { ...process.env, GLOG_minloglevel: '3' }
  const done = await runAsync(process.execPath, ['-e', `require(${JSON.stringify(addon)}); process.exit(0)`], { env })
  if (!done.ok)
    fail(
      build,
      key,
      'loading the new addon',
      `error: ${(/Error: (.*)/.exec(done.output)?.[1] ?? done.output) || done.signal}\n${done.output}`,
    )
}

async function make(build, key, progress) {
  const start = performance.now()
  const folder = join(cacheFolder(), 'native', key)
  const draft = `${folder}.${process.pid}`
  progress.say(
    `building the addon for torch ${build.torch.version}${build.cuda ? ' with CUDA' : ''} (${build.torch.path}), ${build.std}`,
  )
  const { objects, log } = await compileAll(build, key, progress)
  rmSync(draft, { recursive: true, force: true })
  mkdirSync(draft, { recursive: true })
  try {
    const addon = join(draft, 'roundtrip.node')
    const linked = await runCompiler(build.compiler, [...objects, ...build.link, '-o', addon])
    if (!linked.ok) fail(build, key, 'linking', linked.output)
    await tryLoading(build, key, addon)
    writeFileSync(join(draft, 'build.log'), log + linked.output)
    rmSync(folder, { recursive: true, force: true })
    renameSync(draft, folder)
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
  rmSync(`${folder}.failed.log`, { force: true })
  dropOldObjects(join(cacheFolder(), 'native', 'objects'))
  progress.say(`addon built, ${seconds(start)}`)
}

/** The addon of a plan: built if it is not in the cache. */
export async function buildAddon(build, sources, progress) {
  const key = keyOf(build, sources)
  const addon = join(cacheFolder(), 'native', key, 'roundtrip.node')
  const lock = join(cacheFolder(), 'native', `${key}.lock`)
  const wait = (owner) =>
    progress.say(`${owner} is building the addon; waiting for it. If no set-up is running, delete ${lock}`)
  if (!existsSync(addon))
    await withLock(lock, wait, async () => {
      if (!existsSync(addon)) await make(build, key, progress)
    })
  return { key, addon }
}
