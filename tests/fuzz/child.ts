// Runs cases one after the other and writes down which is under way, so that the parent can name the one that hangs, grows
// or kills the process. Arguments: format, seed, first case, end, folder.
import { execFileSync } from 'node:child_process'
import {
  closeSync,
  cpSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { Mismatch, messageOf, stream } from '../../src/core/index.ts'
import { again, type Case, type CaseResult, type FileEntry, isSmallFile, type Outcome, secret } from './format.ts'
import { formatNamed } from './formats/index.ts'

const [, , name = '', seed = '0', first = '0', end = '0', folder = '', keep = ''] = process.argv
const format = formatNamed(name)
const roomy = 400 * 1024 * 1024
const place = join(folder, 'case')
const outside = join(folder, 'outside')
const results = openSync(join(folder, 'results.jsonl'), 'a')
const current = openSync(join(folder, 'current'), 'w+')

process.env.ROUNDTRIP_CACHE = join(folder, 'cache')
process.env.ROUNDTRIP_LOG = 'error'
process.env.FUZZ_CANARY = join(outside, 'canary')

function begin(index: number): void {
  const bytes = Buffer.alloc(8)
  bytes.writeDoubleLE(index)
  writeSync(current, bytes, 0, 8, 0)
}

function finish(result: CaseResult): void {
  writeSync(results, `${JSON.stringify(result)}\n`)
  if (keep !== '' && result.outcome !== 'read' && result.outcome !== 'refused')
    cpSync(place, join(keep, `${name}-${result.index}`), { recursive: true, filter: isSmallFile })
}

function write(input: Case): void {
  rmSync(place, { recursive: true, force: true })
  rmSync(join(folder, 'cache'), { recursive: true, force: true })
  mkdirSync(place, { recursive: true })
  for (const [file, bytes] of Object.entries(input.files)) {
    mkdirSync(dirname(join(place, file)), { recursive: true })
    writeFileSync(join(place, file), bytes)
  }
  for (const [file, entry] of Object.entries(input.entries ?? {})) putEntry(join(place, file), entry)
}

function putEntry(path: string, entry: FileEntry): void {
  rmSync(path, { recursive: true, force: true })
  if (entry.kind === 'folder') mkdirSync(path)
  else if (entry.kind === 'pipe') execFileSync('mkfifo', [path])
  else if (entry.kind === 'link') symlinkSync(entry.to === 'self' ? basename(path) : entry.to, path)
  else if (entry.kind === 'sparse') {
    writeFileSync(path, '')
    truncateSync(path, 8 * 1024 ** 2)
  }
}

/** Files that a reader wrote anywhere but in its cache. */
function escaped(input: Case): string | null {
  if (readdirSync(outside).length > 0) return `${readdirSync(outside)[0]} outside`
  const known = new Set(Object.keys(input.files).flatMap((file) => parents(file)))
  const other = readdirSync(place, { recursive: true }).find(
    (file) => !known.has(String(file)) && !format.writes?.test(String(file)),
  )
  if (other !== undefined) return `${other} beside the case`
  return 'polluted' in {} ? 'a property of every object' : null
}

function parents(file: string): string[] {
  const parts = file.split('/')
  return parts.map((_, i) => parts.slice(0, i + 1).join('/'))
}

const namesSecret = (message: string) => message.includes('FUZZ_CANARY=') || message.includes(secret)

async function attempt(input: Case): Promise<[Outcome, string]> {
  try {
    const data = await format.read(place, input)
    if (input.expect === undefined || data === input.expect) return ['read', '']
    return ['wrong', `expected ${input.expect.slice(0, 200)}, got ${data.slice(0, 200)}`]
  } catch (error) {
    if (error instanceof Mismatch) return namesSecret(error.message) ? ['escape', error.message] : ['refused', '']
    return ['raw', `${error instanceof Error ? error.stack?.split('\n').slice(0, 4).join(' | ') : messageOf(error)}`]
  }
}

/** Memory that earlier cases left must not count against the next one; what cannot be freed asks for a new process. */
function makeRoom(next: number): void {
  if (process.memoryUsage.rss() < roomy) return
  globalThis.gc?.()
  if (process.memoryUsage.rss() < roomy) return
  begin(next - 1)
  process.exit(again)
}

mkdirSync(outside, { recursive: true })
if (!existsSync(join(folder, 'seeds'))) mkdirSync(join(folder, 'seeds'))
const mutate = await format.setup(join(folder, 'seeds'))
for (let index = Number(first); index < Number(end); index++) {
  if (index > Number(first)) makeRoom(index)
  const input = await mutate(stream(Number(seed), name, index))
  write(input)
  begin(index)
  const [outcome, message] = await attempt(input)
  const found = escaped(input)
  finish({ index, outcome: found ? 'escape' : outcome, note: input.note.slice(0, 200), message: found ?? message })
}
begin(Number(end))
closeSync(results)
process.exit(0)
