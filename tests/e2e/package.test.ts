// The package as a user gets it: packed, installed in an empty folder, set up there. The examples are type-checked against its
// declarations and run against its compiled code.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import test, { after, before } from 'node:test'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), 'roundtrip-package-'))
const project = join(scratch, 'project')
const installed = join(project, 'node_modules/roundtrip-rl')
const own = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  version: string
  exports: Record<string, unknown>
  devDependencies: Record<string, string>
}

function run(folder: string, command: string): string {
  const { ROUNDTRIP_ADDON: _, NODE_OPTIONS: __, NODE_TEST_CONTEXT: ___, ...env } = process.env
  const quick = { npm_config_prefer_offline: 'true', npm_config_update_notifier: 'false', npm_config_loglevel: 'error' }
  const done = spawnSync('bash', ['-c', command], { cwd: folder, env: { ...env, ...quick }, encoding: 'utf8' })
  assert.equal(done.status, 0, `${command}\n${done.stdout}\n${done.stderr}`)
  return done.stdout
}

before(() => {
  mkdirSync(project)
  writeFileSync(join(project, 'package.json'), '{ "name": "empty", "private": true, "type": "module" }\n')
  run(root, `npm pack --pack-destination ${scratch}`)
  const version = (name: string) => `${name}@${own.devDependencies[name]}`
  const tools = [version('tsx'), version('typescript'), version('@types/node')].join(' ')
  run(project, `npm install --no-audit --no-fund ../roundtrip-rl-${own.version}.tgz ${tools}`)
  for (const name of readdirSync(join(root, 'examples'))) cpSync(join(root, 'examples', name), join(project, name))
})

after(() => rmSync(scratch, { recursive: true, force: true }))

const notShipped =
  /\.test\.|^tests|^tools|^bench|miniature-full|testing\.|^src\b|^scripts\/(?!setup\.mjs|lib$|lib\/(?:apt|build|find-torch|lock|packages|progress|record)\.mjs)/

test('the package holds what it runs, and no tests, benches or second miniature', () => {
  const files = readdirSync(installed, { recursive: true }) as string[]
  const unwanted = files.filter((path) => notShipped.test(path))
  assert.deepEqual(unwanted, [])
  for (const path of [
    'dist/public/index.js',
    'dist/public/index.d.ts',
    ...readdirSync(join(root, 'src/kernels'))
      .filter((name) => name.endsWith('.cu'))
      .map((name) => `dist/kernels/${name}`),
    'native/addon.cc',
    'scripts/setup.mjs',
    'assets/miniature/model.safetensors',
    'assets/points-miniature/policy/model.safetensors',
    'assets/python/reference.py',
    'assets/points-miniature/sam2/model.safetensors',
    'recipes/points-demo.yaml',
    'README.md',
    'LICENSE',
  ])
    assert.ok(existsSync(join(installed, path)), path)
  const doors = Object.keys(own.exports).filter((name) => !name.endsWith('.json'))
  assert.deepEqual(doors, ['.', './rewards', './data', './models', './tensor', './tasks'])
})

test('every picture and file that README and the pages link to is in the package', () => {
  const docs = readdirSync(join(installed, 'docs')).filter((name) => name.endsWith('.md'))
  for (const page of ['README.md', 'SECURITY.md', 'CONTRIBUTING.md', ...docs.map((name) => `docs/${name}`)]) {
    const text = readFileSync(join(installed, page), 'utf8')
    const links = [...text.matchAll(/\]\(([^)#]+)|src="([^"]+)"/g)].map((match) => match[1] ?? match[2]!)
    for (const link of links.filter((to) => !/^https?:/.test(to)))
      assert.ok(existsSync(join(installed, dirname(page), link)), `${page}: ${link}`)
  }
})

test('publint finds nothing to say about the package', () => {
  assert.match(run(root, `npx publint --strict --pack false ${installed}`), /All good!/)
})

test('the command answers to its name, prints its version and sets itself up', () => {
  for (const name of ['roundtrip-rl', 'roundtrip'])
    assert.equal(run(project, `npx ${name} --version`).trim(), own.version)
  const record = JSON.parse(run(project, 'npx roundtrip-rl setup --json')) as { addon: string; root: string }
  assert.ok(existsSync(record.addon))
  assert.match(record.root, /node_modules\/roundtrip-rl$/)
  assert.match(run(project, 'npx roundtrip-rl info'), /torch/)
})

test('new writes a task, a reward and a data source that type-check and train', () => {
  for (const kind of ['task', 'reward', 'data']) run(project, `npx roundtrip-rl new ${kind} own-${kind}`)
  mkdirSync(join(project, 'nested'))
  writeFileSync(join(project, 'nested/package.json'), '{ "type": "commonjs" }\n') // as `npm init` writes it
  const [, wanted] = run(project, 'npx roundtrip-rl new task nested/own-two').trimEnd().split('\n')
  const command = wanted!.replace('--data scenes:40', '--data ./own-data.ts --reward ./own-reward.ts')
  run(project, `${command} --maxSteps 1 --rl.numGenerations 2 --rl.maxCompletionLength 12 --evalRecords 2 --threads 1`)
  const events = readFileSync(join(project, 'runs/new-task/events.jsonl'), 'utf8')
  assert.match(events, /"own-two\/rewards\/own-reward\/mean"/)
  const again = spawnSync('npx', ['roundtrip-rl', 'new', 'task', 'own-task'], { cwd: project, encoding: 'utf8' })
  assert.deepEqual([again.status, /expected a file that does not exist yet/.test(again.stderr)], [1, true])
})

test('the archive for a machine without network installs there, passes its tests and trains', () => {
  run(root, 'npm run bundle')
  const name = `roundtrip-offline-linux-${process.arch}`
  run(scratch, `tar xzf ${join(root, 'build', `${name}.tar.gz`)}`)
  run(scratch, `bash ${name}/install.sh --prefix ${scratch}/local --test`)
  const offline = spawnSync('unshare', ['-rn', 'true']).status === 0 ? 'unshare -rn' : '' // a host may forbid namespaces
  const settings = '--maxSteps 1 --rl.numGenerations 2 --rl.maxCompletionLength 12 --evalRecords 2 --threads 1'
  const model = 'local/lib/roundtrip/app/assets/miniature'
  run(scratch, `${offline} local/bin/roundtrip train --model ${model} --data scenes:20 --output offline ${settings}`)
  assert.match(readFileSync(join(scratch, 'offline/events.jsonl'), 'utf8'), /"t":"stop","step":1/)
  const lib = 'local/lib/roundtrip' // benches start this program
  run(scratch, `ROUNDTRIP_CACHE=${lib}/cache ${lib}/node ${lib}/app/tools/make-checkpoint.js checkpoint --shape tiny`)
  assert.ok(existsSync(join(scratch, 'checkpoint/config.json')))
})

test('every example type-checks against the declarations, and a wrong use of each entry point does not', () => {
  const options = {
    target: 'es2022',
    module: 'nodenext',
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    allowImportingTsExtensions: true,
    types: ['node'],
  }
  writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions: options, include: ['*.ts'] }))
  // a declaration that is not found would be `any` and accept all of these
  writeFileSync(
    join(project, 'wrong.ts'),
    `import { train } from 'roundtrip-rl'
import type { Reward } from 'roundtrip-rl/rewards'
import { openSource } from 'roundtrip-rl/data'
import { openFamily } from 'roundtrip-rl/models'
import { tensor } from 'roundtrip-rl/tensor'
import type { TaskKind } from 'roundtrip-rl/tasks'
// @ts-expect-error a model is a path
train({ model: 7 })
// @ts-expect-error a reward has a range
export const reward: Reward = { name: 'x', doc: '', score: () => 1 }
// @ts-expect-error a source is opened by its path
openSource(7)
// @ts-expect-error a family is opened by its folder
openFamily({})
// @ts-expect-error a tensor is not a number
export const n: number = tensor([1, 2])
// @ts-expect-error a kind builds tasks
export const kind: TaskKind = { name: 'x', doc: '' }
`,
  )
  run(project, 'npx tsc -p .')
  rmSync(join(project, 'wrong.ts'))
})

const small = '--device cpu --dtype float32 --threads 1 --lora.rank 4 --rl.gradientAccumulationSteps 1 --batchSize 2'
const quick = '--maxSteps 1 --rl.numGenerations 2 --rl.maxCompletionLength 12 --evalRecords 2 --data.evalFraction 0.5'
const model = 'node_modules/roundtrip-rl/assets/miniature'

test('a run from TypeScript trains on a source and a reward of the user, and its folder can be read', () => {
  const text = readFileSync(join(project, 'train.ts'), 'utf8')
  assert.ok(text.trimEnd().split('\n').length < 20)
  const printed = run(project, `OMP_NUM_THREADS=1 npx tsx train.ts ${model} ./my-data.ts runs/first`)
  assert.match(printed, /^step 2: cycle\/iou [\d.e-]+ -> [\d.e-]+$/m)
  const read = run(project, 'npx tsx read-run.ts runs/first')
  assert.match(read, /^before {3}cycle\/iou/m)
  assert.match(read, /^step 2 {2}loop1\/reward_mean [\d.]+ {2}loop2\/reward_mean [\d.]+$/m)
  assert.doesNotMatch(read, /^problem/m)
  const metrics = readFileSync(join(project, 'runs/first/events.jsonl'), 'utf8')
  assert.match(metrics, /"loop1\/rewards\/colours\/mean"/)
})

/** The same program in a CommonJS project, where an ES module is imported inside a function. */
function commonJs(text: string): string {
  const body = text
    .replace(/import (\{.*\}) from ('.*')/, 'const $1 = await import($2)')
    .replace('runs/mine', 'runs/other')
  return `async function main() {\n${body}}\nmain()\n`
}

test('the reward and the run of README work as printed in a project with nothing else installed', () => {
  const readme = readFileSync(join(root, 'README.md'), 'utf8')
  const plain = mkdtempSync(join(tmpdir(), 'roundtrip-readme-'))
  writeFileSync(join(plain, 'package.json'), '{}')
  symlinkSync(join(project, 'node_modules'), join(plain, 'node_modules'))
  for (const [, text] of readme.matchAll(/^```js\n([\s\S]*?)^```$/gm)) {
    const name = /^\/\/ (\S+)/.exec(text!)![1]!
    writeFileSync(join(plain, name), text!.replace('maxSteps: 10,', 'maxSteps: 1, evalRecords: 2, threads: 1,'))
  }
  assert.match(run(plain, 'node train.mjs'), /mean: /)
  writeFileSync(join(plain, 'train.cjs'), commonJs(readFileSync(join(plain, 'train.mjs'), 'utf8')))
  assert.match(run(plain, 'node train.cjs'), /mean: /)
  rmSync(plain, { recursive: true, force: true })
})

test('a task outside the package trains, evaluates and resumes by its path', () => {
  const flags = `--task ./my-task.ts --train mlp1,lora --model ${model} --data ./my-data.ts --output runs/short ${small} ${quick} --optim.lrSchedulerType constant`
  const first = run(project, `npx roundtrip-rl train ${flags}`)
  assert.match(first, /short\/meteor/)
  assert.match(first, /short\/words/)
  assert.match(run(project, `npx roundtrip-rl train ${flags} --maxSteps 2`), /done after step 2/)
  const events = readFileSync(join(project, 'runs/short/events.jsonl'), 'utf8')
  assert.match(events, /"short\/reward_mean"/)
  assert.doesNotMatch(events, /loop1/)
})

test('commands of the installed package see the user’s source and run the demo', () => {
  assert.match(run(project, 'npx roundtrip-rl data inspect ./my-data.ts'), /48/)
  const last = run(project, 'npx roundtrip-rl demo --maxSteps 1 --batchSize 1 --evalRecords 2 --json')
    .trimEnd()
    .split('\n')
  assert.deepEqual(Object.keys(JSON.parse(last.at(-1)!) as object), ['seed', 'seconds', 'before', 'after'])
})
