// Ends a child beyond its limits: a minute of computing time a case, ten of waiting, one gigabyte of memory.
import { type ChildProcess, spawn } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ownProgram } from '../support/own-program.ts'
import { again, type CaseResult, isSmallFile, type Outcome } from './format.ts'

const limits = { wallSeconds: 600, bytes: 1024 ** 3 }
const ticks = 100 // of the clock of /proc/PID/stat a second
const page = 4096

interface Use {
  cpu: number
  memory: number
  /** Ready to compute, whether or not a busy machine lets it. */
  ready: boolean
}

/** Computing time in seconds and resident memory in bytes; zeros if the system does not report them. */
function useOf(pid: number): Use {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return {
      cpu: (Number(fields[11]) + Number(fields[12])) / ticks,
      memory: Number(fields[21]) * page,
      ready: fields[0] === 'R',
    }
  } catch {
    return { cpu: 0, memory: 0, ready: false }
  }
}

function currentCase(folder: string): number {
  const file = join(folder, 'current')
  const bytes = existsSync(file) ? readFileSync(file) : Buffer.alloc(0)
  return bytes.length === 8 ? bytes.readDoubleLE() : -1
}

interface Ended {
  /** Why it was ended from here; null when it ended by itself. */
  verdict: Outcome | null
  code: number | null
  stderr: string
}

function guard(child: ChildProcess, folder: string, cpuSeconds: number): Promise<Ended> {
  let at = -1
  let began = { cpu: 0, waited: 0 }
  let last = Date.now()
  let verdict: Outcome | null = null
  let stderr = ''
  child.stderr?.on('data', (piece) => {
    stderr = (stderr + piece).slice(-2000)
  })
  const timer = setInterval(() => {
    const { cpu, memory, ready } = useOf(child.pid!)
    const now = currentCase(folder)
    if (now !== at) {
      at = now
      began = { cpu, waited: 0 }
    }
    if (!ready) began.waited += Date.now() - last
    last = Date.now()
    if (memory > limits.bytes) verdict ??= 'memory'
    if (at >= 0 && (cpu - began.cpu > cpuSeconds || began.waited > 1000 * limits.wallSeconds)) verdict ??= 'hang'
    if (verdict) child.kill('SIGKILL')
  }, 50)
  return new Promise((resolve) => {
    child.on('close', (code) => {
      clearInterval(timer)
      resolve({ verdict, code, stderr })
    })
  })
}

export interface RunOptions {
  n: number
  seed: number
  /** Where the files of findings go; empty for nowhere. */
  keep: string
  /** Processes side by side. */
  jobs?: number
  /** Computing time of a case after which it is a hang. */
  cpuSeconds?: number
}

/** Runs all cases of a format, each process a stretch of them. */
export async function runFormat(name: string, options: RunOptions): Promise<CaseResult[]> {
  const { n, keep, jobs = 1 } = options
  if (keep !== '') mkdirSync(keep, { recursive: true })
  const bound = (job: number) => Math.round((n * job) / jobs)
  const stretches = Array.from({ length: jobs }, (_, job) => runStretch(name, bound(job), bound(job + 1), options))
  return (await Promise.all(stretches)).flat()
}

/** A child that ends early is followed by another from the next case on. */
async function runStretch(name: string, first: number, n: number, options: RunOptions): Promise<CaseResult[]> {
  const { seed, keep, cpuSeconds = 60 } = options
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-fuzz-'))
  const main = ownProgram('./child.ts', import.meta.url)
  const lost: CaseResult[] = []
  try {
    for (let from = first; from < n; ) {
      rmSync(join(folder, 'current'), { force: true })
      rmSync(join(folder, 'outside'), { recursive: true, force: true })
      const args = ['--expose-gc', ...main, name, String(seed), String(from), String(n), folder, keep]
      const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'pipe'] })
      const { verdict, code, stderr } = await guard(child, folder, cpuSeconds)
      const at = currentCase(folder)
      if (at < 0) throw new Error(`the fuzzing process of ${name} did not start: ${stderr}`)
      if (at >= n) break
      from = at + 1
      if (verdict === null && code === again) continue
      if (keep !== '')
        cpSync(join(folder, 'case'), join(keep, `${name}-${at}`), { recursive: true, filter: isSmallFile })
      lost.push({ index: at, outcome: verdict ?? 'crash', note: '', message: `${code ?? ''} ${stderr}`.trim() })
    }
    const ended = new Set(lost.map((r) => r.index))
    return [...readResults(folder).filter((r) => !ended.has(r.index)), ...lost].sort((a, b) => a.index - b.index)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function readResults(folder: string): CaseResult[] {
  const file = join(folder, 'results.jsonl')
  if (!existsSync(file)) return []
  const lines = readFileSync(file, 'utf8').split('\n')
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as CaseResult)
}
