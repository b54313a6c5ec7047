import { readFileSync } from 'node:fs'
import type { Command } from 'commander'
import { lackOfRoom, Mismatch, messageOf, namesFile, printable } from '../core/index.ts'

interface Entry {
  summary: string
  load: () => Promise<{ command: () => Command }>
}

/** Every command, loaded only when called: `--help` must not pay for the engine. */
const commands: Record<string, Entry> = {
  demo: { summary: 'train the miniature on generated scenes, before and after', load: () => import('./demo.ts') },
  pull: { summary: 'download a model or a dataset into the Hugging Face cache', load: () => import('./pull.ts') },
  train: { summary: 'train with both loops', load: () => import('./train.ts') },
  adapt: { summary: 'adapt a model to a folder of pictures without annotations', load: () => import('./adapt.ts') },
  sft: { summary: 'supervised fine-tuning: captions, answers and masks', load: () => import('./sft.ts') },
  eval: { summary: 'held-out metrics of a model or a checkpoint', load: () => import('./eval.ts') },
  compare: { summary: 'two runs or models on the same held-out records', load: () => import('./compare.ts') },
  doctor: { summary: 'check gradient flow, image input and engine of a model', load: () => import('./doctor.ts') },
  caption: { summary: 'describe the region of a picture that a mask marks', load: () => import('./caption.ts') },
  segment: { summary: 'draw the mask of what a phrase means', load: () => import('./segment.ts') },
  points: { summary: 'let a Qwen-VL place points for SAM2', load: () => import('./points.ts') },
  data: { summary: 'look at datasets, and make one', load: () => import('./data.ts') },
  score: { summary: 'score pairs of captions or masks', load: () => import('./score.ts') },
  watch: { summary: 'a live page about runs while they train', load: () => import('./watch.ts') },
  report: { summary: 'one HTML page about a run', load: () => import('./report.ts') },
  export: { summary: 'a full model folder from a checkpoint or an adapter', load: () => import('./export.ts') },
  inspect: { summary: 'look into weights and checkpoints', load: () => import('./inspect.ts') },
  plan: { summary: 'memory of a run on GPUs of different size', load: () => import('./plan.ts') },
  info: { summary: 'versions, devices, memory', load: () => import('./info.ts') },
  setup: { summary: 'find or install libtorch and build the addon', load: () => import('./setup.ts') },
  verify: { summary: 'recompute golden data of the reference implementations', load: () => import('./verify.ts') },
  new: { summary: 'a starting point for a task, a reward or a data source', load: () => import('./new.ts') },
  settings: { summary: 'list the settings of a run', load: () => import('./settings.ts') },
}

function help(): string {
  const width = Math.max(...Object.keys(commands).map((name) => name.length))
  const rows = Object.entries(commands).map(([name, entry]) => `  ${name.padEnd(width)}  ${entry.summary}`)
  return [
    'roundtrip: GRPO fine-tuning of vision-language models that point at pixels',
    '',
    'usage: npx roundtrip-rl COMMAND [options]   npx roundtrip-rl COMMAND --help   npx roundtrip-rl --version',
    '',
    ...rows,
    '',
  ].join('\n')
}

/** package.json is two folders up from the sources and from the compiled files. */
function version(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8')
  return (JSON.parse(text) as { version: string }).version
}

/** A reader such as `head` may close the pipe early; that ends the program quietly, as it ends others. */
function endWithReader(error: NodeJS.ErrnoException): void {
  if (error.code === 'EPIPE') process.exit()
  throw error
}

/** A terminal, pipe or full disk that takes no more messages costs the messages, not the run. */
function goOnWithout({ code }: NodeJS.ErrnoException): void {
  if (!['EPIPE', 'EIO', 'ENOSPC', 'ECONNRESET'].includes(String(code))) process.exitCode ||= 1
}

/** Node reads a byte that is not UTF-8 as U+FFFD: the path would be another one. */
function requireUtf8(argv: readonly string[]): void {
  const got = argv.find((word) => word.includes('\ufffd'))
  if (got === undefined) return
  const hint = 'rename the file or folder'
  throw new Mismatch({ where: 'roundtrip', field: 'arguments', expected: 'names in UTF-8', got, hint })
}

async function main(argv: readonly string[]): Promise<void> {
  requireUtf8(argv)
  const name = argv[0]
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    process.stdout.write(help())
    return
  }
  if (name === '--version' || name === '-V') {
    process.stdout.write(`${version()}\n`)
    return
  }
  const entry = Object.hasOwn(commands, name) ? commands[name] : undefined
  if (!entry) {
    const { nearest } = await import('../config/index.ts')
    const names = Object.keys(commands)
    const close = nearest(name, names)
    const hint = close && `did you mean ${close}?`
    throw new Mismatch({ where: 'roundtrip', field: 'command', expected: names.join(', '), got: name, hint })
  }
  const { command } = await entry.load()
  const { knownOptions } = await import('./spelling.ts')
  const program = command().name(`npx roundtrip-rl ${name}`)
  const isRun = program.options.length === 0 && program.commands.length === 0 // it reads its settings itself
  const words = isRun ? argv.slice(1) : await knownOptions(program, argv.slice(1))
  await program.parseAsync(['node', 'roundtrip', ...words])
}

/** A timer or a connection that a reward module left behind does not keep a command alive that is through. */
function endSoon(): void {
  setTimeout(() => process.exit(), 500).unref()
}

/** A full disk gets the file and what to do; other errors have them, or Node's message with the path. */
function nameFile(error: unknown): void {
  const { code, dest, path, syscall, message } = (error ?? {}) as NodeJS.ErrnoException & { dest?: string }
  if (lackOfRoom(error) && message.startsWith(`${code}: `)) namesFile(dest ?? path ?? `${syscall}`, error)
}

process.stdout.on('error', endWithReader)
process.stderr.on('error', goOnWithout)
try {
  await main(process.argv.slice(2))
} catch (error) {
  nameFile(error)
  const debug = process.env.ROUNDTRIP_LOG === 'debug' && error instanceof Error
  process.stderr.write(`error: ${debug ? error.stack : printable(messageOf(error))}\n`)
  process.exitCode = (error as { launcherCode?: number }).launcherCode ?? 1
} finally {
  endSoon()
}
