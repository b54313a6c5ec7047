import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import test from 'node:test'
import { cacheFolder as cacheAtRunTime } from '../../src/core/index.ts'
import { buildRecord } from '../../src/engine/locate.ts'
import { usesCxx11Abi } from './build.mjs'
import { findCuda, findTorch, inspect, triplet } from './find-torch.mjs'
import { withLock } from './lock.mjs'
import { packagesStale } from './packages.mjs'
import { cacheFolder, findBuild, fingerprint, recordPath, root, sourcesHash, writeRecord } from './record.mjs'

const scratch = () => mkdtempSync(join(tmpdir(), 'roundtrip-set-up-'))

function put(base, files) {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(base, path)), { recursive: true })
    writeFileSync(join(base, path), text)
  }
  return base
}

const versionHeader = (major, minor, patch) =>
  `#define TORCH_VERSION_MAJOR ${major}\n#define TORCH_VERSION_MINOR ${minor}\n#define TORCH_VERSION_PATCH ${patch}\n`

const headers = (version) => ({
  'include/ATen/Tensor.h': '',
  'include/ATen/core/dispatch/Dispatcher.h': '',
  'include/c10/core/Device.h': '',
  'include/torch/csrc/autograd/autograd.h': '',
  'include/torch/csrc/api/include/torch/version.h': versionHeader(...version),
})
const libraries = (folder) => ({
  [`${folder}/libc10.so`]: '',
  [`${folder}/libtorch_cpu.so`]: '',
  [`${folder}/libtorch.so`]: '',
})
const wheel = (version = [2, 11, 0]) => ({
  ...headers(version),
  ...libraries('lib'),
  'version.py': "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n",
})

test('a wheel folder is a complete torch with the version its version.py names', () => {
  const found = inspect(put(scratch(), wheel()), 'path')
  assert.equal(found.missing, undefined)
  assert.deepEqual([found.version, found.cudaVersion], ['2.11.0+cu130', '13.0'])
})

test('a prefix with the libraries below the multiarch folder is a complete torch', () => {
  const base = put(scratch(), { ...headers([1, 13, 0]), ...libraries(`lib/${triplet}`) })
  assert.equal(inspect(base, 'path').lib, join(base, 'lib', triplet))
})

test('the folder that holds torch/ may be given instead of torch/ itself', () => {
  const base = scratch()
  put(join(base, 'torch'), wheel())
  assert.equal(inspect(base, 'path').path, join(base, 'torch'))
})

test('an incomplete torch names what is missing, and an old one its version', () => {
  const { 'include/ATen/Tensor.h': _, ...rest } = wheel()
  assert.match(inspect(put(scratch(), rest), 'path').missing, /ATen\/Tensor\.h$/)
  assert.match(inspect(put(scratch(), headers([2, 0, 0])), 'path').missing, /libtorch_cpu\.so/)
  assert.match(inspect(put(scratch(), wheel([1, 12, 1])), 'path').missing, /1\.12\.1 found, 1\.13 or newer/)
})

test('ROUNDTRIP_TORCH is the only candidate when it is set', () => {
  const base = put(scratch(), wheel())
  const { chosen, candidates } = findTorch({ ...process.env, ROUNDTRIP_TORCH: base })
  assert.deepEqual([chosen, candidates.map((torch) => torch.path)], [base, [base]])
})

test('the torch of an active virtual environment is found without importing it', () => {
  const environment = scratch()
  const torch = join(environment, 'site-packages', 'torch')
  put(torch, wheel())
  const answer = JSON.stringify({ torch, prefix: environment, sites: [dirname(torch)] })
  put(environment, { 'bin/python': `#!/bin/sh\necho '${answer}'\n` })
  spawnSync('chmod', ['755', join(environment, 'bin/python')])
  const { candidates, watch } = findTorch({ PATH: process.env.PATH, VIRTUAL_ENV: environment })
  assert.deepEqual([candidates[0].path, candidates[0].kind], [torch, 'python'])
  assert.ok(watch.includes(dirname(torch)))
})

test('CUDA headers are taken from the nvidia wheels beside torch, and a missing one is named', () => {
  const site = scratch()
  const cuda = { 'lib/libtorch_cuda.so': '', 'lib/libc10_cuda.so': '', 'include/ATen/cuda/CUDAContext.h': '' }
  const torch = inspect(put(join(site, 'torch'), { ...wheel(), ...cuda }), 'path')
  const names = ['cuda_runtime_api.h', 'crt/host_defines.h', 'cublas_v2.h', 'cusparse.h', 'cusolverDn.h']
  put(join(site, 'nvidia/cu13/include'), Object.fromEntries(names.map((name) => [name, ''])))
  put(join(site, 'nvidia/nccl/include'), { 'nccl.h': '' })
  const found = findCuda(torch, {})
  assert.deepEqual([found.cuda, found.nccl], [true, true])
  assert.deepEqual(found.include, [join(site, 'nvidia/cu13/include'), join(site, 'nvidia/nccl/include')])
  assert.equal(findCuda(inspect(put(scratch(), wheel()), 'path'), {}).cuda, false)
})

test('the string ABI is read from the symbols of libc10', () => {
  const abi = (symbol) =>
    usesCxx11Abi(put(scratch(), { 'libc10.so': `\0ELF\0${symbol}\0_ZNSt7__cxx1112basic_stringE\0` }))
  assert.equal(abi('_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcE'), true)
  assert.equal(abi('_ZN3c105ErrorC1ENS_14SourceLocationESs'), false)
})

test('run time looks for the record where set-up writes it, for every choice of torch', () => {
  const before = { ...process.env }
  process.env.ROUNDTRIP_CACHE = scratch()
  for (const torch of ['', '/some/torch', 'relative/torch']) {
    process.env.ROUNDTRIP_TORCH = torch
    writeRecord({ format: 1, addon: torch })
    assert.equal(buildRecord()?.addon, torch)
    assert.equal(cacheAtRunTime(), cacheFolder())
  }
  for (const name of ['ROUNDTRIP_CACHE', 'ROUNDTRIP_TORCH']) {
    if (before[name] === undefined) delete process.env[name]
    else process.env[name] = before[name]
  }
})

test('a build counts until a source or the torch library changes', () => {
  const base = put(scratch(), { 'native/a.cc': 'one', 'native/gloo/b.h': 'two', 'lib.so': 'x', 'roundtrip.node': 'x' })
  const env = { ROUNDTRIP_CACHE: scratch() }
  const library = () => fingerprint(join(base, 'lib.so'))
  const record = () => ({
    format: 1,
    addon: join(base, 'roundtrip.node'),
    sources: sourcesHash(base),
    library: library(),
  })
  assert.equal(findBuild(base, env), null)
  writeRecord(record(), base, env)
  assert.ok(existsSync(recordPath(base, env)))
  assert.equal(findBuild(base, env)?.addon, join(base, 'roundtrip.node'))
  put(base, { 'native/gloo/b.h': 'three' })
  assert.equal(findBuild(base, env), null)
  writeRecord(record(), base, env)
  put(base, { 'lib.so': 'another build' })
  assert.equal(findBuild(base, env), null)
})

test('a lock is waited for while its process runs and broken when the process has ended', async () => {
  const path = join(scratch(), 'x.lock')
  const gone = spawnSync(process.execPath, ['-e', '0']).pid
  writeFileSync(path, `${gone} ${hostname()}`)
  const order = []
  const first = withLock(
    path,
    () => order.push('wait'),
    async () => {
      order.push('first in')
      await new Promise((done) => setTimeout(done, 300))
      order.push('first out')
    },
  )
  const second = withLock(
    path,
    () => order.push('second waits'),
    async () => order.push('second in'),
  )
  await Promise.all([first, second])
  assert.deepEqual(order, ['second waits', 'first in', 'first out', 'second in'])
  assert.equal(existsSync(path), false)
})

test('packages are stale when one of the lock file is missing or of another version, optional ones aside', () => {
  const packages = {
    '': {},
    'node_modules/a': { version: '1.0.0' },
    'node_modules/b': { version: '1.0.0', optional: true },
  }
  const base = put(scratch(), { 'package-lock.json': JSON.stringify({ packages }) })
  const installed = (version) =>
    put(base, { 'node_modules/.package-lock.json': JSON.stringify({ packages: { 'node_modules/a': { version } } }) })
  assert.equal(packagesStale(base), true)
  assert.equal(packagesStale(installed('1.0.0')), false)
  assert.equal(packagesStale(installed('0.9.0')), true)
  assert.equal(packagesStale(scratch()), false)
})

test('the test reporter counts passes, failures, skips, broken files and files without tests', () => {
  const base = put(scratch(), {
    'a.test.mjs': `import test, { describe } from 'node:test'
      test('passes', () => {}); test('fails', () => { throw new Error('on purpose') }); test('skips', { skip: 'why' }, () => {})
      describe('suite', () => { test('inner', () => {}) })`,
    'b.test.mjs': `throw new Error('at load')`,
    'c.test.mjs': '',
  })
  const counts = join(base, 'counts.json')
  const { NODE_TEST_CONTEXT: _, ...env } = process.env // set inside a test run; it would change the inner runner's output
  const reporter = `--test-reporter=${join(root, 'scripts/lib/test-reporter.mjs')}`
  const files = ['a', 'b', 'c'].map((name) => join(base, `${name}.test.mjs`))
  const done = spawnSync(process.execPath, ['--test', reporter, ...files], {
    encoding: 'utf8',
    env: { ...env, ROUNDTRIP_TEST_COUNTS: counts },
  })
  const { passed, failed, skipped } = JSON.parse(readFileSync(counts, 'utf8'))
  assert.deepEqual({ passed, failed, skipped }, { passed: 2, failed: 3, skipped: 1 })
  assert.match(done.stdout, /FAILED: fails\n\s+Error: on purpose/)
  assert.match(done.stdout, /skipped: skips \(why\)/)
})
