// `npm run gen-api`: writes docs/api/*.md, a page per entry point of the package; `--check` compares and exits with 1 if one differs.
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { apiPage, namesOf } from './lib/api-pages.mjs'
import { root } from './lib/record.mjs'

const entryPoints = {
  'roundtrip-rl': ['index', 'Train, fine-tune and evaluate from TypeScript; read what a run wrote.'],
  'roundtrip-rl/rewards': ['rewards', 'Write a reward, or use a built-in one.'],
  'roundtrip-rl/data': ['data', 'Open a dataset, write a source, work with masks.'],
  'roundtrip-rl/models': ['models', 'Open a checkpoint, generate, and score with gradients.'],
  'roundtrip-rl/tensor': ['tensor', 'Tensors on libtorch: scopes, gradients, and the ops as methods.'],
  'roundtrip-rl/tasks': ['tasks', 'Write a task.'],
}

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-api-'))
const compiler = join(root, 'node_modules', '.bin', 'tsc')
const options = ['-p', 'tsconfig.build.json', '--emitDeclarationOnly', '--outDir', folder]
const { status } = spawnSync(compiler, options, { cwd: root, stdio: 'inherit' })
const out = join(root, 'docs', 'api')
const check = process.argv.includes('--check')
let different = 0
const maxNames = 130
if (status === 0) {
  mkdirSync(out, { recursive: true })
  const declarations = (file) => join(folder, 'public', `${file}.d.ts`)
  const names = new Set(Object.values(entryPoints).flatMap(([file]) => [...namesOf(declarations(file)).keys()]))
  if (names.size > maxNames) throw new Error(`${names.size} public names, the limit is ${maxNames}`)
  for (const [name, [file, purpose]] of Object.entries(entryPoints)) {
    const page = apiPage(name, purpose, declarations(file), (word) => names.has(word))
    const path = join(out, `${file}.md`)
    if (!check) writeFileSync(path, page)
    else if (readFileSync(path, 'utf8') !== page) {
      different++
      console.log(`${path.slice(root.length + 1)} is out of date: run npm run gen-api`)
    }
  }
  if (!check) console.log(`${names.size} public names`)
}
rmSync(folder, { recursive: true, force: true })
process.exitCode = status === 0 && different === 0 ? 0 : 1
