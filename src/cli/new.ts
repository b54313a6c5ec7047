import { existsSync, readFileSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { Argument, Command } from 'commander'
import { atomicWrite, Mismatch, makeFolder, packageRoot } from '../core/index.ts'

type Kind = 'task' | 'reward' | 'data'

interface Start {
  /** The example that it starts from. */
  example: string
  /** Words of the example that become the name. */
  replaces: readonly RegExp[]
  use: (file: string) => string
}

/** The miniature that comes with the package, as seen from here. */
const miniature = () => relative(process.cwd(), join(packageRoot(), 'assets', 'miniature'))
const quick = () => `--model ${miniature()} --device cpu --dtype float32 --lora.rank 4 --maxSteps 2 --batchSize 2`

const starts: Readonly<Record<Kind, Start>> = {
  task: {
    example: 'my-task.ts',
    replaces: [/(?<=name: ')short(?=')/g],
    use: (file) => `train --task ${file} --train mlp1,lora --data scenes:40 ${quick()} --output runs/new-task`,
  },
  reward: {
    example: 'my-reward.ts',
    replaces: [/(?<=name: ')colours(?=')/g],
    use: (file) => `train --reward ${file} --data scenes:40 ${quick()} --output runs/new-reward`,
  },
  data: {
    example: 'my-data.ts',
    replaces: [/(?<=name: ')discs(?=')/g, /discs(?=: record)/g, /disc(?=-\$\{)/g],
    use: (file) => `train --data ${file} ${quick()} --output runs/new-data`,
  },
}

/** `roundtrip new task NAME`: a module that runs as it is, and the command that trains with it. */
export function command(): Command {
  const kinds = Object.keys(starts)
  return new Command('new')
    .description('write a starting point for a task, a reward or a data source in TypeScript')
    .addArgument(new Argument('<kind>', 'what to write').choices(kinds))
    .argument('<name>', 'its name: letters, digits and dashes; NAME.ts is written here, or path/NAME.ts')
    .action(write)
}

function write(kind: Kind, path: string): void {
  const name = basename(path).replace(/\.ts$/, '')
  const refuse = (expected: string, got: string, hint?: string) =>
    new Mismatch({ where: `new ${kind}`, field: 'name', expected, got, hint })
  if (!/^[A-Za-z][\w-]*$/.test(name)) throw refuse('a letter, then letters, digits and dashes', name)
  const file = join(dirname(path), `${name}.ts`)
  if (existsSync(file)) throw refuse('a file that does not exist yet', file, 'choose another name')
  const { use } = starts[kind]
  const text = startingPoint(kind, name)
  makeFolder(dirname(file))
  atomicWrite(file, text)
  const shown = file.startsWith('/') || file.startsWith('.') ? file : `./${file}`
  process.stdout.write(`${file}\nnpx roundtrip-rl ${use(shown)}\n`)
}

/** The example under its new name. */
export function startingPoint(kind: Kind, name: string): string {
  const { example, replaces } = starts[kind]
  const text = readFileSync(join(packageRoot(), 'examples', example), 'utf8')
  const named = replaces.reduce((all, word) => all.replace(word, name), text)
  return named.replaceAll(`./${example}`, `./${name}.ts`)
}
