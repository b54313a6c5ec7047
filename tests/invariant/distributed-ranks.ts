// Real processes for the tests of several ranks: each runs one scenario of distributed-work.ts.
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ownProgram } from '../support/own-program.ts'

export interface Ended {
  code: number | null
  signal: NodeJS.Signals | null
  /** Lines of standard output that are JSON. */
  results: unknown[]
  stderr: string
  /** When it ended, in ms of performance.now(). */
  at: number
}

export interface Rank {
  process: ChildProcess
  ended: Promise<Ended>
  /** Resolves when the process has printed the word on a separate line. */
  said(word: string): Promise<void>
  /** The same for text on standard error. */
  warned(text: RegExp): Promise<void>
}

export interface StartOptions {
  /** Meets at a server on this port instead of in a file. */
  port?: number
  env?: Record<string, string>
  /** Another program than distributed-work.ts. */
  program?: readonly string[]
  /** Extra words for each rank's scenario. */
  words?: (rank: number) => string[]
  /** Words in front of the command of a rank, such as those that run it on another host. */
  on?: (rank: number) => string[]
  /** Ranks that are started; all unless given. */
  only?: readonly number[]
}

const work = ownProgram('./distributed-work.ts', import.meta.url)

export function startRanks(size: number, scenario: string, options: StartOptions = {}): Rank[] {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-ranks-'))
  const ranks = options.only ?? Array.from({ length: size }, (_, r) => r)
  const file: Record<string, string> = options.env?.['MASTER_ADDR'] ? {} : { ROUNDTRIP_STORE: join(folder, 'store') }
  const meeting = options.port ? { MASTER_ADDR: '127.0.0.1', MASTER_PORT: String(options.port) } : file
  const started = ranks.map((rank) => {
    const env = { ...process.env, ...meeting, ...place(rank, size), ...options.env }
    const own = [process.execPath, ...(options.program ?? work), scenario, ...(options.words?.(rank) ?? [])]
    const [program, ...args] = [...(options.on?.(rank) ?? []), ...own]
    return follow(spawn(program!, args, { env, stdio: ['ignore', 'pipe', 'pipe'] }))
  })
  void Promise.all(started.map((rank) => rank.ended)).then(() => rmSync(folder, { recursive: true, force: true }))
  return started
}

function place(rank: number, size: number): Record<string, string> {
  return {
    RANK: String(rank),
    WORLD_SIZE: String(size),
    LOCAL_RANK: String(rank),
    LOCAL_WORLD_SIZE: String(size),
    OMP_NUM_THREADS: '1',
  }
}

function follow(child: ChildProcess): Rank {
  let stdout = ''
  let stderr = ''
  const waiting: { isSeen: () => boolean; done: () => void }[] = []
  const tell = () => {
    for (const { isSeen, done } of waiting) if (isSeen()) done()
  }
  child.stdout!.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
    tell()
  })
  child.stderr!.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
    tell()
  })
  const ended = new Promise<Ended>((resolve) => {
    child.on('close', (code, signal) => {
      const lines = stdout.split('\n').filter((line) => line.startsWith('{') || line.startsWith('['))
      resolve({ code, signal, results: lines.map((line) => JSON.parse(line)), stderr, at: performance.now() })
    })
  })
  const seen = (what: string, isSeen: () => boolean) =>
    new Promise<void>((resolve, reject) => {
      if (isSeen()) resolve()
      waiting.push({ isSeen, done: resolve })
      void ended.then((end) => reject(new Error(`ended with ${end.code} before it said ${what}: ${end.stderr}`)))
    })
  const said = (word: string) => seen(word, () => stdout.split('\n').includes(word))
  const warned = (text: RegExp) => seen(String(text), () => text.test(stderr))
  return { process: child, ended, said, warned }
}

export async function runRanks(size: number, scenario: string, options: StartOptions = {}): Promise<Ended[]> {
  return Promise.all(startRanks(size, scenario, options).map((rank) => rank.ended))
}

/** A port that was free a moment ago. */
export function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer()
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number }
      server.close(() => resolve(port))
    })
  })
}
