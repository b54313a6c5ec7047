// `npm run bundle [-- --arch x64|arm64]`: one archive for a Linux machine without network and Node; it needs tar, gzip and g++.
// Node and packages of another CPU architecture come from the registry; packages are checked against package-lock.json.
// Content: install.sh, node, app/ (the tree of a clone with TypeScript compiled in place, and production packages).
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import { parseArgs } from 'node:util'
import { installPackages, packagesStale } from '../scripts/lib/packages.mjs'
import { capture, main, reporter, SetupError, seconds } from '../scripts/lib/progress.mjs'
import { root } from '../scripts/lib/record.mjs'
import { stripElf } from './lib/strip-elf.mjs'

const { values: flags } = parseArgs({
  options: { arch: { type: 'string', default: process.arch }, 'no-fixtures': { type: 'boolean', default: false } },
})
const machines = { x64: 'x86_64', arm64: 'aarch64' }
const arch = flags.arch
const foreign = arch !== process.arch
const name = `roundtrip-offline-linux-${arch}`
const maxBytes = 90e6 // 81 MB, 21 MB of it fixtures
const build = join(root, 'build')
const stage = join(build, name)
const app = join(stage, 'app')
// development packages that the target needs: for the engine's tests, and tsx for rewards and tasks in TypeScript
const extraPackages = ['fast-check', 'pure-rand', 'tsx', 'esbuild', `@esbuild/linux-${arch}`].map(
  (name) => `node_modules/${name}`,
)
const code = ['src', 'tests', 'bench', 'recipes']

function compile() {
  const config = {
    extends: '../tsconfig.json',
    compilerOptions: { noEmit: false, rootDir: '..', outDir: `./${name}/app`, noEmitOnError: true, types: ['node'] },
    include: [...code, 'tools/make-checkpoint.ts'].map((path) => `../${path}`), // which benches start
  }
  const path = join(build, 'tsconfig.bundle.json')
  writeFileSync(path, JSON.stringify(config))
  const done = capture(join(root, 'node_modules/.bin/tsc'), ['-p', path], { timeout: 300_000 })
  rmSync(path)
  if (!done.ok) throw new SetupError(`tsc failed:\n${done.stdout.trim().split('\n').slice(0, 10).join('\n')}`)
}

function copy(path, filter) {
  if (existsSync(join(root, path)))
    cpSync(join(root, path), join(app, path), { recursive: true, filter, verbatimSymlinks: true })
}

// --no-fixtures leaves 21 MB out, for a target that gets tests/fixtures another way
const fixtures = !flags['no-fixtures']
// what no test of `install.sh --test` reads
const unread = [
  ...['misc', 'lora-tiny', 'benchmarks-tiny', 'meteor.jsonl', 'porter.jsonl'].map((name) => `golden/${name}`),
  'python-reference',
].map((name) => `tests/fixtures/${name}`)
const leftOut = [...(fixtures ? [] : ['tests/fixtures']), 'tests/mutants', ...unread].map((path) => join(root, path))
const notSource = (path) => !path.endsWith('.ts') && !leftOut.includes(path)

const dropped = /\/node_modules\/(?:@[^/]+\/)?[^/]+\/(?:test|tests|docs|example|examples|benchmark)$/

// only what Node reads at run time, and licences: no types, maps, documents, browser builds
function needed(path) {
  const file = basename(path)
  if (/^(licen[cs]e|notice|copying)/i.test(file)) return true
  if (path.endsWith('/node_modules/esbuild/bin')) return false // a second copy of @esbuild's program, for the command line
  return !/\.(map|ts|mts|cts|md|flow|tsbuildinfo)$|\.min\.js$/.test(file) && !dropped.test(path)
}

function copyPackages() {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
  const wanted = Object.entries(packages)
    .filter(([path, entry]) => path !== '' && (!entry.dev || extraPackages.includes(path)) && fits(entry))
    .filter(([path, entry]) => existsSync(join(root, path)) || entry.cpu?.includes(arch))
  for (const [path, entry] of wanted) {
    if (existsSync(join(root, path)))
      copy(path, (from) => needed(from) && !/\/node_modules\/(?:@[^/]+\/)?[^/]+\/node_modules$/.test(from))
    else fetchPackage(path.replace(/^.*node_modules\//, ''), entry.version, join(app, path), entry.integrity)
  }
  return wanted.length
}

/** Packages of other systems and processors are left out. */
function fits({ os, cpu, libc }) {
  const allows = (list, word) => !list || list.includes(word)
  return allows(os, 'linux') && allows(cpu, arch) && allows(libc, 'glibc')
}

/** Downloads a package into a folder. Its hash must be that of the lock file, if `integrity` is given. */
function fetchPackage(name, version, target, integrity) {
  const spec = `${name}@${version}`
  const packed = capture('npm', ['pack', spec, '--json', '--pack-destination', build], { timeout: 600_000 })
  if (!packed.ok) throw new SetupError(`npm pack ${spec} failed: ${packed.stderr.trim().split('\n').at(-1)}`)
  const archive = join(build, basename(JSON.parse(packed.stdout)[0].filename.replace('@', '').replace('/', '-')))
  const hash = `sha512-${createHash('sha512').update(readFileSync(archive)).digest('base64')}`
  if (integrity && hash !== integrity) throw new SetupError(`${spec}: expected ${integrity}, got ${hash}`)
  mkdirSync(target, { recursive: true })
  const done = capture('tar', ['xzf', archive, '-C', target, '--strip-components=1'], { timeout: 600_000 })
  rmSync(archive)
  if (!done.ok) throw new SetupError(`${spec}: unpacking failed: ${done.stderr.trim()}`)
}

function copyNode() {
  const target = join(stage, 'node')
  const unpacked = join(build, 'foreign-node')
  if (foreign) fetchPackage(`node-linux-${arch}`, process.version.slice(1), unpacked)
  writeFileSync(target, stripElf(readFileSync(foreign ? join(unpacked, 'bin/node') : process.execPath)), {
    mode: 0o755,
  })
  rmSync(unpacked, { recursive: true, force: true })
  if (!foreign && !capture(target, ['--version']).ok) throw new SetupError('the copy of Node does not run')
}

function copyTree() {
  for (const folder of code) copy(folder, notSource)
  copy('assets', (path) => basename(path) !== 'miniature-full') // only for experiments with loop 2
  for (const path of ['native', 'bin', 'package.json', 'README.md', 'LICENSE', 'NOTICE', 'docs']) copy(path)
  const commands = ['setup', 'test', 'bench'].map((name) => `scripts/${name}.mjs`)
  for (const path of [...commands, 'scripts/lib']) copy(path)
  const install = readFileSync(join(root, 'tools/install.sh'), 'utf8')
  writeFileSync(join(stage, 'install.sh'), install.replaceAll(machines.x64, machines[arch]), { mode: 0o755 })
}

function pack() {
  const archive = join(build, `${name}.tar.gz`)
  const script =
    'tar --sort=name --owner=0 --group=0 --numeric-owner -cf - "$1" | gzip -9 > "$2.part" && mv "$2.part" "$2"'
  const done = spawnSync('bash', ['-o', 'pipefail', '-c', script, 'pack', name, archive], {
    cwd: build,
    stdio: 'inherit',
  })
  if (done.status !== 0) throw new SetupError('packing the archive failed')
  return archive
}

main(async () => {
  if (process.platform !== 'linux') throw new SetupError('the bundle is built on Linux')
  if (!Object.hasOwn(machines, arch)) throw new SetupError(`--arch: expected x64 or arm64, got ${arch}`)
  const start = performance.now()
  const progress = reporter()
  if (packagesStale()) await installPackages(progress)
  rmSync(stage, { recursive: true, force: true })
  mkdirSync(app, { recursive: true })
  progress.say('compiling')
  compile()
  copyTree()
  progress.say(`${copyPackages()} packages copied`)
  copyNode()
  progress.say('packing')
  const archive = pack()
  const { size } = statSync(archive)
  rmSync(stage, { recursive: true, force: true })
  progress.say(`${relative(process.cwd(), archive)}: ${(size / 1e6).toFixed(1)} MB, ${seconds(start)}`)
  if (size > maxBytes) throw new SetupError(`the archive is larger than ${maxBytes / 1e6} MB`)
})
