// `npm run build-page`: the live page's script and style from src/dashboard/page to assets/watch, where they are committed.
// `--check` writes nothing and fails where the committed files are not what the build gives.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const source = join(root, 'src/dashboard/page')
export const target = join(root, 'assets/watch')

/** File name -> bytes. */
export async function buildPage() {
  const { outputFiles } = await build({
    entryPoints: [join(source, 'app.tsx')],
    outfile: join(target, 'page.js'),
    absWorkingDir: root,
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2022',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    tsconfigRaw: {},
    legalComments: 'inline',
    charset: 'utf8',
    write: false,
  })
  const files = outputFiles.map(({ path, contents }) => [path.split('/').at(-1), Buffer.from(contents)])
  return new Map([...files, ['index.html', readFileSync(join(source, 'index.html'))]])
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const check = process.argv.includes('--check')
  mkdirSync(target, { recursive: true })
  for (const [name, bytes] of await buildPage()) {
    const path = join(target, name)
    const same = existsSync(path) && readFileSync(path).equals(bytes)
    if (check && !same) {
      console.error(`assets/watch/${name} is not what the build gives: run npm run build-page`)
      process.exitCode = 1
    }
    if (!check) writeFileSync(path, bytes)
  }
}
