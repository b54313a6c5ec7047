// Prepares a clone: npm packages, libtorch, compiler, addon. Uses Node built-ins only. See docs/engine.md.
import { realpathSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { aptPrefix, candidate, install, slowBlas, update } from './lib/apt.mjs'
import { buildAddon, findCompiler, library, plan } from './lib/build.mjs'
import { findCuda, findSystem, findTorch, pythons } from './lib/find-torch.mjs'
import { installPackages, packagesStale } from './lib/packages.mjs'
import { main, reporter, SetupError, seconds } from './lib/progress.mjs'
import {
  explainCache,
  findBuild,
  hashFiles,
  mtimeOf,
  prepareCache,
  root,
  sha256,
  sourcesHash,
  writeRecord,
} from './lib/record.mjs'

const threeWays = `no usable libtorch (1.13 or newer) was found. Any one of these is enough; then run set-up again:
  1. pip install torch                       in the Python that \`python3\` starts (or activate the environment that has it)
  2. apt-get install libtorch-dev libopenblas0-pthread g++      as root, on Debian 12 or Ubuntu 24.04 and newer
  3. export ROUNDTRIP_TORCH=/path/to/libtorch      an unpacked libtorch, a wheel's torch/ folder or a prefix`

const scripts = ['lib/build.mjs', 'lib/find-torch.mjs', 'setup.mjs']
const noCompiler = 'no C++ compiler was found: install g++ (apt-get install g++) or set CXX to one'

// the search for torch is repeated if these scripts, CXX, CUDA_HOME, an interpreter, or a folder that an installation writes to changes
const watched = (paths) => [...paths, ...pythons()].map((path) => [path, mtimeOf(path)])
const recipe = () =>
  sha256(hashFiles(join(root, 'scripts'), scripts) + [process.env.CXX, process.env.CUDA_HOME, ...pythons()].join())
const unchanged = (record) =>
  record.recipe === recipe() && record.watch.every(([path, mtime]) => mtimeOf(path) === mtime)

/** Packages that apt can install, or null. Older Ubuntu releases have a libtorch that is too old. */
async function aptTorch(context) {
  if (!context.apt) return null
  if (!candidate('libtorch-dev') || !candidate('g++')) await update(context.apt, context.progress)
  const version = /^(?:\d+:)?(\d+)\.(\d+)/.exec(candidate('libtorch-dev') ?? '')
  if (!version || Number(version[1]) * 100 + Number(version[2]) < 113) return null
  return ['libtorch-dev', 'libopenblas0-pthread', ...(findCompiler() ? [] : ['g++'])]
}

async function installOrStop(context, packages) {
  const start = performance.now()
  const done = await install(context.apt, packages, context.progress)
  if (!done.ok)
    throw new SetupError(
      `apt-get install ${packages.join(' ')} failed:\n${done.output.trim().split('\n').slice(-8).join('\n')}`,
    )
  context.progress.say(`packages installed, ${seconds(start)}`)
}

async function chooseTorch(context) {
  const { say } = context.progress
  const { chosen, candidates, watch } = findTorch()
  for (const torch of candidates) {
    if (!torch.missing) return { torch, watch }
    if (chosen) throw new SetupError(`ROUNDTRIP_TORCH=${chosen} is not a complete libtorch: missing ${torch.missing}`)
    say(`torch at ${torch.path} is not complete: missing ${torch.missing}`)
  }
  const packages = await aptTorch(context)
  if (!packages) throw new SetupError(threeWays)
  await installOrStop(context, packages)
  const torch = findSystem().find((found) => !found.missing)
  if (!torch) throw new SetupError(threeWays)
  return { torch, watch }
}

async function ensureCompiler(context) {
  const found = findCompiler()
  if (found) return found
  if (process.env.CXX) throw new SetupError(`CXX=${process.env.CXX} does not run`)
  if (!context.apt) throw new SetupError(noCompiler)
  if (!candidate('g++')) await update(context.apt, context.progress)
  await installOrStop(context, ['g++'])
  return findCompiler() ?? stop(noCompiler)
}

function stop(text) {
  throw new SetupError(text)
}

async function ensureFastBlas(torch, context) {
  if (torch.kind !== 'system' || torch.path !== '/usr' || !slowBlas()) return
  if (context.apt) return installOrStop(context, ['libopenblas0-pthread'])
  context.progress.say('matrix products are about 10 times slower than they could be: install libopenblas0-pthread')
}

// some torch versions need C++20 although the headers that we check do not state it
async function buildWithStandard(torch, cuda, compiler, sources, progress) {
  const first = plan(torch, cuda, compiler)
  try {
    return { build: first, ...(await buildAddon(first, sources, progress)) }
  } catch (error) {
    if (!error.wantsCxx20) throw error
    const second = plan(torch, cuda, compiler, 'c++20')
    return { build: second, ...(await buildAddon(second, sources, progress)) }
  }
}

/** Everything that a build needs except npm packages; apt may take a minute. */
async function prepare(context) {
  const { torch, watch } = await chooseTorch(context)
  const compiler = await ensureCompiler(context)
  await ensureFastBlas(torch, context)
  return { torch, watch, compiler }
}

async function buildAndRecord({ torch, watch, compiler }, progress) {
  const cuda = findCuda(torch)
  if (cuda.why) progress.say(`torch ${torch.version} has CUDA, but the addon is built without CUDA graphs: ${cuda.why}`)
  const sources = sourcesHash()
  const { build, key, addon } = await buildWithStandard(torch, cuda, compiler, sources, progress)
  const record = {
    format: 1,
    addon,
    key,
    root,
    sources,
    torchVersion: torch.version,
    torchPath: torch.path,
    torchLib: torch.lib,
    kind: torch.kind,
    cuda: build.cuda,
    nccl: build.nccl,
    cxx11Abi: build.abi,
    std: build.std,
    flags: build.flags,
    library: library(torch),
    recipe: recipe(),
    watch: watched(watch),
  }
  writeRecord(record)
  return record
}

/** Does what is missing and returns the build record. `install: false` never calls npm or apt. */
export async function setup({ quiet = false, install: mayInstall = !process.env.ROUNDTRIP_NO_INSTALL } = {}) {
  if (process.platform !== 'linux') throw new SetupError(`Linux is needed, this is ${process.platform}`)
  const progress = reporter({ quiet })
  const stale = packagesStale()
  const known = findBuild()
  const built = known && unchanged(known)
  if (!built) prepareCache() // before minutes of downloads
  if (stale && !mayInstall) throw new SetupError('npm packages are missing or old: run `npm ci`')
  if (!stale && built) return known
  const context = { progress, apt: mayInstall ? aptPrefix() : null }
  const [ready] = await Promise.all([prepare(context), stale ? installPackages(progress) : null])
  return buildAndRecord(ready, progress).catch((error) => {
    throw explainCache(error)
  })
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url))
  main(async () => {
    const flags = process.argv.slice(2)
    const unknown = flags.find((flag) => !['--quiet', '--json', '--no-install'].includes(flag))
    if (unknown) throw new SetupError(`setup: unknown argument ${unknown}; known: --quiet --json --no-install`)
    const options = { quiet: flags.includes('--quiet') }
    const record = await setup(flags.includes('--no-install') ? { ...options, install: false } : options)
    if (flags.includes('--json')) console.log(JSON.stringify(record, null, 2))
    else if (!options.quiet)
      console.error(
        `ready: torch ${record.torchVersion} (${record.kind}), ${record.cuda ? 'CUDA' : 'CPU'}, ${record.addon}`,
      )
  })
