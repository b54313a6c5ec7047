// METEOR on pairs of 30-word captions, one core, beside NLTK where Debian's Python has it with WordNet 3.0.
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { log, Mismatch } from '../src/core/index.ts'
import { meteor } from '../src/rewards/meteor/index.ts'

type MeteorPair = readonly [reference: string, hypothesis: string]

import { type BenchRow, row } from './bench.ts'

const numPairs = 2000
const wordsPerCaption = 30
const python = '/usr/bin/python3'
const dictionary = '/usr/share/wordnet'

// NLTK reads its corpus folder with a file `lexnames` that Debian does not ship; the names in it do not matter here.
const nltkScript = `
import json, os, sys, tempfile, time, warnings
warnings.simplefilter('ignore')
try:
    import nltk
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    from nltk.translate.meteor_score import single_meteor_score
except ImportError:
    print('null')
    sys.exit(0)
source = sys.argv[1]
with tempfile.TemporaryDirectory() as folder:
    for name in os.listdir(source):
        if os.path.isfile(os.path.join(source, name)):
            os.symlink(os.path.join(source, name), os.path.join(folder, name))
    with open(os.path.join(folder, 'lexnames'), 'w') as out:
        for i in range(45):
            out.write('%02d\\tn%d\\t1\\n' % (i, i))
    wordnet = WordNetCorpusReader(nltk.data.FileSystemPathPointer(folder), None)
    pairs = json.load(sys.stdin)
    seconds = []
    for _ in range(2):
        start = time.process_time()
        scores = [single_meteor_score(r.strip().lower().split(), h.strip().lower().split(), wordnet=wordnet) for r, h in pairs]
        seconds.append(time.process_time() - start)
print(json.dumps({'cold': seconds[0], 'warm': seconds[1], 'scores': scores}))
`

interface NltkResult {
  /** CPU seconds for all pairs: with empty caches, with filled ones. */
  cold: number
  warm: number
  scores: number[]
}

interface FreshResult {
  firstMs: number
  thousandMs: number
}

function findRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url))
  while (!existsSync(join(folder, 'package.json'))) folder = dirname(folder)
  return folder
}

/** Captions of the reference set joined and cut to the same length. */
function makePairs(): MeteorPair[] {
  const text = readFileSync(join(findRoot(), 'tests/fixtures/golden/meteor.jsonl'), 'utf8')
  const rows = text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line)]))
  const captions = rows.filter((row) => row.kind === 'caption')
  const cut = (field: 'reference' | 'hypothesis', from: number) => {
    const words: string[] = []
    for (let k = from; words.length < wordsPerCaption; k++)
      words.push(...captions[k % captions.length][field].split(/\s+/))
    return words.slice(0, wordsPerCaption).join(' ')
  }
  // The second round starts with the other caption in front, so that no pair is repeated.
  return Array.from({ length: numPairs }, (_, i) => {
    const shift = Math.floor(i / captions.length)
    return [cut('reference', i), cut('hypothesis', i + shift)] as const
  })
}

function cpuSeconds(work: () => void): number {
  const start = process.cpuUsage()
  work()
  const used = process.cpuUsage(start)
  return (used.user + used.system) / 1e6
}

function runNltk(pairs: readonly MeteorPair[]): NltkResult | null {
  if (!existsSync(python) || !existsSync(join(dictionary, 'index.noun'))) return null
  const done = spawnSync(python, ['-c', nltkScript, dictionary], {
    input: JSON.stringify(pairs),
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  })
  if (done.status === 0) return JSON.parse(done.stdout)
  log.warn(`NLTK could not be run: ${done.stderr.trim().split('\n').at(-1)}`)
  return null
}

/** Times of a process that has not scored anything yet. */
function runFresh(pairs: readonly MeteorPair[]): FreshResult {
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js'
  const door = new URL(`../src/rewards/meteor/index.${extension}`, import.meta.url).href
  const source = `
    import { readFileSync } from 'node:fs'
    const { meteor } = await import(${JSON.stringify(door)})
    const pairs = JSON.parse(readFileSync(0, 'utf8'))
    const start = performance.now()
    meteor('a dog sits on a couch', 'a hound sits on the sofa')
    const first = performance.now()
    for (const [reference, hypothesis] of pairs) meteor(reference, hypothesis)
    console.log(JSON.stringify({ firstMs: first - start, thousandMs: performance.now() - start }))`
  const args = [...process.execArgv, '--input-type=module', '-e', source]
  const done = spawnSync(process.execPath, args, {
    input: JSON.stringify(pairs.slice(0, 999)),
    encoding: 'utf8',
    cwd: pathToFileURL(findRoot()),
  })
  if (done.status === 0) return JSON.parse(done.stdout)
  throw new Mismatch({ where: 'fresh process', expected: 'two times', got: done.stderr })
}

export async function run(): Promise<BenchRow[]> {
  const pairs = makePairs()
  const fresh = runFresh(pairs)
  const scores = new Float64Array(numPairs)
  const pass = () => {
    for (const [i, [reference, hypothesis]] of pairs.entries()) scores[i] = meteor(reference, hypothesis)
  }
  const cold = numPairs / cpuSeconds(pass)
  const rounds = 20
  pass()
  const warm =
    (rounds * numPairs) /
    cpuSeconds(() => {
      for (let k = 0; k < rounds; k++) pass()
    })
  const nltk = runNltk(pairs)
  const different = nltk ? nltk.scores.filter((score, i) => score !== scores[i]).length : 0
  if (different > 0) throw new Mismatch({ where: 'METEOR', expected: "NLTK's scores", got: `${different} others` })
  return [
    row('METEOR, 30 words, warm', warm, nltk && numPairs / nltk.warm, 'pairs/s'),
    row('METEOR, 30 words, cold caches', cold, nltk && numPairs / nltk.cold, 'pairs/s'),
    row('METEOR, first call with table', fresh.firstMs, null, 'ms'),
    row('METEOR, first 1,000 calls', fresh.thousandMs, null, 'ms'),
  ]
}
