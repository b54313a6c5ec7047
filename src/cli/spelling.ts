// Options of the commands that are not runs, under the names of the settings they set: --maxTiles for --max-tiles.
import type { Command } from 'commander'
import { Mismatch } from '../core/index.ts'

type Spelling = Readonly<Record<string, string>>

/** Names after `--`, replaced; a value in the same word stays. */
export function respell(argv: readonly string[], spelling: Spelling): string[] {
  return argv.map((word) => {
    const name = /^--([^=]+)/.exec(word)?.[1] ?? ''
    return Object.hasOwn(spelling, name) ? word.replace(name, spelling[name]!) : word
  })
}

/** Settings whose option is not their own name in kebab case. */
const options: Spelling = {
  'rl.maxCompletionLength': 'max-new-tokens',
  'data.refSplit': 'split',
  'rewards.judge.baseUrl': 'judge-url',
  'rewards.judge.cacheDir': 'judge-cache',
  'rewards.judge.apiKeyEnv': 'judge-key-env',
  'rewards.judge.maxConcurrency': 'concurrency',
  'lora.rank': 'lora-rank',
}

const kebab = (name: string) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)

function* spellingsOf(path: string): Generator<string> {
  yield options[path] ?? path
  yield kebab(path)
  const judge = /^rewards\.judge\.(.*)$/.exec(path)
  if (judge) yield `judge-${kebab(judge[1]!)}`
  yield kebab(path.split('.').at(-1)!)
}

/** The words of a command with each option as commander knows it; an option that the command does not have is an error. */
export async function knownOptions(command: Command, argv: readonly string[]): Promise<string[]> {
  const of = command.commands.find((sub) => sub.name() === argv[0]) ?? command
  const find = (name: string) => of.options.find(({ long }) => long === `--${name}`)
  const out: string[] = []
  for (let i = 0; i < argv.length; i++) {
    const word = argv[i]!
    const name = /^--([^=]+)/.exec(word)?.[1]
    if (word === '--') return [...out, ...argv.slice(i)]
    if (name === undefined || name === 'help') {
      out.push(word)
      continue
    }
    const option = find(name) ?? find(await optionOf(of, name))
    out.push(word.replace(`--${name}`, option!.long!))
    if (option!.required && !word.includes('=') && i + 1 < argv.length) out.push(argv[++i]!)
  }
  return out
}

async function optionOf(command: Command, name: string): Promise<string> {
  const { runTable } = await import('./settings.ts')
  const { nearest } = await import('../config/index.ts')
  const known = command.options.map(({ long }) => long!.slice(2))
  const setting = runTable().find(name)
  const own = [...(setting ? spellingsOf(setting.path) : [kebab(name)])].find((one) => known.includes(one))
  if (own !== undefined) return own
  const where = command.name().replace(/^npx roundtrip-rl /, '')
  const close = nearest(name, known)
  const hint = setting ? 'it is a setting of train, and a recipe may have it' : close && `did you mean --${close}?`
  const expected = `an option of ${where}: ${known.map((one) => `--${one}`).join(', ')}`
  throw new Mismatch({ where, field: `--${name}`, expected, got: setting ? 'a setting' : 'an unknown one', hint })
}

/** Throws if an option was typed that does not act beside the others. */
export function requireActing(command: Command, where: string, acting: readonly string[]): void {
  const stray = command.options.find((option) => {
    const isTyped = command.getOptionValueSource(option.attributeName()) === 'cli'
    return isTyped && !acting.includes(option.attributeName())
  })
  if (!stray) return
  const got = command.getOptionValue(stray.attributeName())
  const hint = `leave ${stray.long} out`
  throw new Mismatch({ where, field: stray.long!, expected: `nothing: ${where} does not read it`, got, hint })
}
