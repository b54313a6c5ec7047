import { Command } from 'commander'
import { counted, humanBytes, modelFolder } from '../core/index.ts'
import type { FolderReport } from '../models/index.ts'
import { aligned, thousands } from './table.ts'

interface Options {
  loraRank?: string
  json?: boolean
  prompt?: string | true
}

export function command(): Command {
  return new Command('inspect')
    .description('what a model folder holds: architecture, parameters by group, dtypes, memory, what would be trained')
    .argument('<dir>', 'a model folder; only headers are read', modelFolder)
    .option('--lora-rank <n>', "rank of the adapters on the language model; default: the run configuration's")
    .option(
      '--prompt [question]',
      "print the prompt of a question about a picture instead, by the family's or the folder's template",
    )
    .option('--json', 'print one JSON object')
    .action(run)
}

async function run(dir: string, options: Options): Promise<void> {
  const { inspectFolder, promptOf } = await import('../models/index.ts')
  if (options.prompt) {
    const rendered = promptOf(dir, options.prompt === true ? 'Where is the red cup?' : options.prompt)
    const text = options.json ? JSON.stringify(rendered) : `${dir}: rendered by ${rendered.by}\n\n${rendered.prompt}`
    process.stdout.write(`${text}\n`)
    return
  }
  const { LoraConfig } = await import('../run/index.ts')
  const report = inspectFolder(dir, Number(options.loraRank ?? LoraConfig.parse({}).rank))
  process.stdout.write(options.json ? `${JSON.stringify(report)}\n` : print(report))
}

function print({ path, architecture, files, groups, lora, memory }: FolderReport): string {
  const row = (name: string, tensors: number, elements: number, trained: number, kinds: string): string[] => {
    const share = trained === 0 ? '-' : `${((100 * trained) / elements).toPrecision(3)} %`
    return [name, String(tensors), thousands(elements), thousands(trained), share, kinds]
  }
  const kindsOf = ({ dtypes }: FolderReport['groups'][number]) =>
    Object.entries(dtypes).map(([kind, n]) => `${kind} ${n}`)
  const sum = (of: 'tensors' | 'elements' | 'trainable') => groups.reduce((n, g) => n + g[of], 0)
  const numAdapters = 2 * lora.layers
  const rows = [
    ...groups.map((g) => row(g.name, g.tensors, g.elements, g.trainable, kindsOf(g).join(', '))),
    row(`lora (rank ${lora.rank}, to be added)`, numAdapters, lora.elements, lora.elements, 'F32'),
    row(
      'total with lora',
      sum('tensors') + numAdapters,
      sum('elements') + lora.elements,
      sum('trainable') + lora.elements,
      '',
    ),
  ]
  const head = ['group', 'tensors', 'elements', 'trained by default', 'ratio', 'dtypes']
  return [
    `${path}: ${counted(files.count, 'weight file')}, ${humanBytes(files.bytes)}`,
    ...Object.entries(architecture).map(([key, value]) => `  ${key.padEnd(8)}  ${value}`),
    '',
    aligned([head, ...rows], { right: [1, 2, 3, 4], indent: '  ' }),
    '',
    ...Object.entries(memory).map(([key, value]) => `  ${key.padEnd(56)}${humanBytes(value)}`),
    '',
  ].join('\n')
}
