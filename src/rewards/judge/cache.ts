// The judge's embedded database: append-only lines of JSON with an index in memory. Each process appends to its own
// file and reads all files of the folder at start, so several runs may share a folder.
import {
  closeSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { addFolder, log, Mismatch, mayRun, messageOf, tryJsonObject } from '../../core/index.ts'

interface Line {
  k: string
  v: unknown
  model: string
  date: string
}

function parseLine(text: string): Line | undefined {
  const line = tryJsonObject(text)
  return line && typeof line.k === 'string' && 'v' in line ? (line as unknown as Line) : undefined
}

/** Takes the lock file, or finds it taken. A lock whose process has ended is taken over. */
function takeLock(path: string): boolean {
  for (let attempt = 0; attempt < 2; attempt++) {
    try {
      writeFileSync(path, `${hostname()} ${process.pid}\n`, { flag: 'wx' })
      return true
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
      const [host = '', pid] = readFileSync(path, 'utf8').trim().split(' ')
      if (host === '' || mayRun(host, Number(pid))) return false
      rmSync(path, { force: true })
    }
  }
  return false
}

export class JudgeCache {
  readonly #index = new Map<string, unknown>()
  readonly #fd: number
  readonly #lock: string
  /** Lines that could not be read. */
  corrupt = 0
  /** The file ends in half a line: the next one starts with a newline. */
  #torn = false
  /** Values that could not be written. */
  unwritten = 0
  #open = true

  constructor(dir: string) {
    try {
      addFolder(dir)
      const slot = this.#ownSlot(dir)
      this.#lock = join(dir, `${slot}.lock`)
      this.#fd = openSync(join(dir, `${slot}.jsonl`), 'a+')
      this.#cutTornLine()
    } catch (error) {
      throw new Mismatch({
        where: dir,
        field: 'judge.cacheDir',
        expected: 'a folder that can be written',
        got: messageOf(error),
      })
    }
    for (const name of readdirSync(dir)) if (name.endsWith('.jsonl')) this.#merge(join(dir, name))
    if (this.corrupt > 0)
      log.warn(`${dir}: ${this.corrupt} unreadable lines of the judge cache left out; they will be asked again`)
  }

  get size(): number {
    return this.#index.size
  }

  get(key: string): unknown {
    return this.#index.get(key)
  }

  set(key: string, value: unknown, model: string): void {
    this.#index.set(key, value)
    const line: Line = { k: key, v: value, model, date: new Date().toISOString() }
    this.#append(`${this.#torn ? '\n' : ''}${JSON.stringify(line)}\n`)
  }

  /** A full disk costs the answers of this run, not the run. */
  #append(text: string): void {
    const bytes = Buffer.from(text)
    let at = 0
    try {
      while (at < bytes.length) at += writeSync(this.#fd, bytes, at)
      this.#torn = false
    } catch (error) {
      this.#torn ||= at > 0
      if (this.unwritten++ === 0) log.warn(`judge cache: ${messageOf(error)}; answers are kept in memory only`)
    }
  }

  /** After this, what was set survives a power cut; it survives the process in any case. */
  flush(): void {
    if (this.#open) fsyncSync(this.#fd)
  }

  close(): void {
    if (!this.#open) return
    this.flush()
    this.#open = false
    closeSync(this.#fd)
    rmSync(this.#lock, { force: true })
  }

  #ownSlot(dir: string): string {
    for (let n = 0; n < 10_000; n++) if (takeLock(join(dir, `judge-${n}.lock`))) return `judge-${n}`
    throw new Error('10,000 locks are taken')
  }

  /** A process killed while writing leaves half a line; a new one would be glued to it. */
  #cutTornLine(): void {
    const size = fstatSync(this.#fd).size
    const bytes = readFileSync(this.#fd)
    const end = bytes.lastIndexOf(10) + 1
    if (end < size) ftruncateSync(this.#fd, end)
  }

  #merge(path: string): void {
    const lines = readFileSync(path, 'utf8').split('\n')
    lines.pop() // empty after a whole last line; half a line of a process that writes right now
    for (const text of lines) {
      const line = parseLine(text)
      if (line) this.#index.set(line.k, line.v)
      else this.corrupt++
    }
  }
}
