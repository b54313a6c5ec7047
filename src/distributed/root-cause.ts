// Which rank a failed collective is about. The transport's text names no rank: "connection reset by peer".
import { hostname } from 'node:os'

/** What a process registers when it joins. */
export interface PeerProcess {
  host: string
  pid: number
}

/** The last words of a process that failed. */
export interface PeerNote {
  rank: number
  step: number
  phase: string
  message: string
}

export interface Beat {
  rank: number
  /** Unix time, ms. */
  at: number
  step: number
  phase: string
}

/** What can be seen of the others. */
export interface Sighting {
  notes: readonly PeerNote[]
  beats: readonly (Beat | null)[]
  peers: readonly PeerProcess[]
  now: number
  beatSeconds: number
}

/** 'unix-ms step phase...' */
export function parseBeat(rank: number, text: string): Beat {
  const [at, step, ...phase] = text.split(' ')
  return { rank, at: Number(at), step: Number(step), phase: phase.join(' ') }
}

/** A note of a failed rank, else a dead process of this host, else a silent rank, else the transport's own words. */
export function rootCause(sighting: Sighting, own: number, text: string): string {
  const { notes, beats, peers, now, beatSeconds } = sighting
  const note = notes.find((one) => one.rank !== own)
  if (note) return `rank ${note.rank} failed in step ${note.step} (${note.phase}): ${note.message}`
  const gone = peers.flatMap((peer, rank) => (rank !== own && !alive(peer) ? [rank] : []))
  if (gone.length > 0) return `${ranksOf(gone)} ended without a message (killed?); ${lastSeen(beats, gone)}; ${text}`
  const silent = beats.filter((beat) => beat && beat.rank !== own && now - beat.at > 2000 * beatSeconds) as Beat[]
  if (silent.length === 0) return text
  const words = silent.map((b) => `rank ${b.rank} silent for ${Math.round((now - b.at) / 1000)} s`)
  return `${words.join(', ')}; ${lastSeen(
    beats,
    silent.map((b) => b.rank),
  )}; ${text}`
}

function ranksOf(ranks: readonly number[]): string {
  return ranks.length === 1 ? `rank ${ranks[0]}` : `ranks ${ranks.join(', ')}`
}

function lastSeen(beats: readonly (Beat | null)[], ranks: readonly number[]): string {
  const known = ranks.flatMap((rank) => beats[rank] ?? [])
  return known.map((b) => `last phase of rank ${b.rank}: ${b.phase}, step ${b.step}`).join(', ') || 'no heartbeat of it'
}

/** False only where it can be known: a process of this host that is not there. */
function alive({ host, pid }: PeerProcess): boolean {
  if (host !== hostname()) return true
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
