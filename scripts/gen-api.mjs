// `npm run gen-api`: writes docs/api/*.md, a page for each door of the package; `--check` only compares and exits with 1 where one differs.
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { apiPage } from './lib/api-pages.mjs'
import { root } from './lib/record.mjs'

const doors = {
  'roundtrip-rl': ['index', 'Runs from TypeScript: train, fine-tune, evaluate, read what a run wrote.'],
  'roundtrip-rl/rewards': [
    'rewards/index',
    'Rewards: the built-in ones, their mix, METEOR, the judge, and the shape of your own.',
  ],
  'roundtrip-rl/data': [
    'data/index',
    'Records: sources of every format, the loader, and the shape of your own source.',
  ],
  'roundtrip-rl/models': ['models/index', 'Families of models: what a run asks of one, and how a folder is opened.'],
  'roundtrip-rl/tensor': ['tensor/index', 'Tensors of libtorch: scopes, gradients, files, and the ops as methods.'],
  'roundtrip-rl/tasks': ['tasks/index', 'Tasks: the two round trips, points, and the shape of your own.'],
}

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-api-'))
const compiler = join(root, 'node_modules', '.bin', 'tsc')
const options = ['-p', 'tsconfig.build.json', '--emitDeclarationOnly', '--outDir', folder]
const { status } = spawnSync(compiler, options, { cwd: root, stdio: 'inherit' })
const out = join(root, 'docs', 'api')
const check = process.argv.includes('--check')
let different = 0
if (status === 0) {
  mkdirSync(out, { recursive: true })
  for (const [door, [file, says]] of Object.entries(doors)) {
    const page = apiPage(door, says, join(folder, `${file}.d.ts`))
    const path = join(out, `${file.split('/')[0]}.md`)
    if (!check) writeFileSync(path, page)
    else if (readFileSync(path, 'utf8') !== page) {
      different++
      console.log(`${path.slice(root.length + 1)} is another page: run npm run gen-api`)
    }
  }
}
rmSync(folder, { recursive: true, force: true })
process.exitCode = status === 0 && different === 0 ? 0 : 1
