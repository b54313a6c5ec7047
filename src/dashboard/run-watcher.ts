// The runs of the live page: found below the given folders, read while a page is open.
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join, resolve, sep } from 'node:path'
import { Mismatch, messageOf, sha256 } from '../core/index.ts'
import { FollowedRun, runFiles } from '../tracking/index.ts'

/** Milliseconds between two reads of the files: an eighth of a step, within these limits. */
const pollMs = 250
const slowPollMs = 1000
const scanMs = 2000
/** After this long without a request nothing is read until the next one. */
const idleMs = 10_000
const scanDepth = 2
/** Bytes read at once (about 10 ms), and the pause after it while requests wait: they come first. */
const sliceBytes = 1 << 20
const politeMs = 8
const waitingMs = 300

export interface WatchedRun {
  /** Names the folder in addresses, which contain no path. */
  id: string
  run: FollowedRun
}

const isRun = (folder: string) => existsSync(join(folder, runFiles.events))

/** Run folders at or below a folder, at most `depth` levels down; `unread` gets the folders that cannot be read, with the reason. */
export function findRuns(folder: string, unread = new Map<string, string>(), depth = scanDepth): string[] {
  if (isRun(folder)) return [folder]
  if (depth === 0) return []
  return foldersIn(folder, unread).flatMap((name) => findRuns(join(folder, name), unread, depth - 1))
}

function foldersIn(folder: string, unread: Map<string, string>): string[] {
  try {
    if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return []
    const below = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory())
    return below.map(({ name }) => name).sort()
  } catch (error) {
    unread.set(folder, messageOf(error))
    return []
  }
}

export class RunWatcher {
  readonly #folders: readonly string[]
  readonly #runs = new Map<string, WatchedRun>()
  readonly #listeners = new Set<() => void>()
  #timer: NodeJS.Timeout | undefined
  #scannedAt = Number.NEGATIVE_INFINITY
  #askedAt = Number.NEGATIVE_INFINITY
  #state = ''
  #notifiedAt = Number.NEGATIVE_INFINITY
  #closed = false
  /** Folders that could not be read, with the reason. */
  problems: string[] = []

  constructor(folders: readonly string[]) {
    for (const folder of folders) {
      if (existsSync(folder)) continue
      throw new Mismatch({ where: folder, expected: 'a run folder, or a folder of run folders', got: 'nothing there' })
    }
    this.#folders = folders.map((folder) => resolve(folder))
  }

  get runs(): WatchedRun[] {
    return [...this.#runs.values()]
  }

  find(id: string): FollowedRun | undefined {
    return this.#runs.get(id)?.run
  }

  /** Called by every request: the first one reads at once, later ones keep the reading going. */
  touch(): void {
    const asleep = this.#timer === undefined
    this.#askedAt = performance.now()
    if (asleep && !this.#closed) this.#tick()
  }

  /** Calls `listener` after every change; the returned function removes it. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener)
    this.touch()
    return () => this.#listeners.delete(listener)
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  #tick(): void {
    this.#scan()
    let more = false
    for (const { run } of this.runs) more = run.poll(sliceBytes) || more
    this.#notify()
    const since = performance.now() - this.#askedAt
    const wanted = more || this.#listeners.size > 0 || since < idleMs
    const pause = more ? (since < waitingMs ? politeMs : 0) : this.#pollPause()
    this.#timer = wanted && !this.#closed ? setTimeout(() => this.#tick(), pause) : undefined
  }

  /** Runs with long steps, and ended ones, are read less often. */
  #pollPause(): number {
    const going = this.runs.filter(({ run }) => !run.end)
    const fastest = Math.min(...going.map(({ run }) => run.timing.last('step_time') ?? 0))
    return Math.min(slowPollMs, Math.max(pollMs, 125 * fastest))
  }

  /** Not more often than every `pollMs`: while a large run is indexed, something changes all the time. */
  #notify(): void {
    const state = this.runs.map(({ id, run }) => `${id} ${run.version} ${run.samplesVersion}`).join()
    if (state === this.#state || performance.now() - this.#notifiedAt < pollMs / 2) return
    this.#state = state
    this.#notifiedAt = performance.now()
    for (const listener of this.#listeners) listener()
  }

  #scan(): void {
    if (performance.now() - this.#scannedAt < scanMs) return
    this.#scannedAt = performance.now()
    const unread = new Map<string, string>()
    const found = new Set(this.#folders.flatMap((folder) => findRuns(folder, unread)))
    this.problems = [...unread].map(([folder, reason]) => `${folder}: ${reason}`)
    for (const folder of found) {
      const id = sha256(folder).slice(0, 12)
      if (!this.#runs.has(id)) this.#runs.set(id, { id, run: new FollowedRun(folder) })
    }
    // A run below a folder that cannot be read now, such as for lack of file handles, is still followed.
    const isHidden = (dir: string) => [...unread.keys()].some((folder) => dir.startsWith(folder + sep))
    for (const { id, run } of this.runs) if (!found.has(run.dir) && !isHidden(run.dir)) this.#runs.delete(id)
  }
}
