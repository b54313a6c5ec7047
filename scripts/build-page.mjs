// `npm run build-page`: builds the live page from src/dashboard/page into assets/watch, which is committed.
// `--check` writes nothing and fails if the committed files differ from the build.
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
