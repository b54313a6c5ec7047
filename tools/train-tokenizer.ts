// Trains the tokenizer of the miniature model on the closed world's captions and prompts, and writes a tokenizer.json.
// The same arguments give the same file.
import { mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Command, InvalidArgumentError } from 'commander'
import { atomicWrite, log } from '../src/core/index.ts'
import { trainSceneTokenizer } from './miniature/corpus.ts'

function wholeNumber(text: string): number {
  const value = Number(text)
  if (!Number.isInteger(value) || value < 0) throw new InvalidArgumentError('a whole number, please')
  return value
}

interface Flags {
  seed: number
  scenes: number
  maxMerges: number
}

new Command('train-tokenizer')
  .argument('<out>', 'a folder, which gets tokenizer.json, or a path that ends in .json')
  .option('--seed <n>', 'which endless set of scenes', wholeNumber, 0)
  .option('--scenes <n>', 'how many captions to read', wholeNumber, 4000)
  .option('--max-merges <n>', 'at most this many merges', wholeNumber, 400)
  .action((out: string, flags: Flags) => {
    const path = out.endsWith('.json') ? out : join(out, 'tokenizer.json')
    const json = trainSceneTokenizer(flags)
    mkdirSync(dirname(path), { recursive: true })
    atomicWrite(path, `${JSON.stringify(json, null, 1)}\n`)
    const base = Object.keys(json.model.vocab).length
    log.info(`${path}: ${json.model.merges?.length} merges, ${base} + ${json.added_tokens.length} tokens`)
  })
  .parse()
