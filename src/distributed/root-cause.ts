// Which rank a failed collective is about. The transport's text names no rank: "connection reset by peer".
import { mayRun } from '../core/index.ts'

/** What a process registers when it joins. */
export interface PeerProcess {
  host: string
  pid: number
}

export interface Beat {
  rank: number
  step: number
  phase: string
}

/** The last message of a process that failed. */
export interface PeerNote extends Beat {
  message: string
  /** The process ends because of another one, which the message names. */
  afterPeer?: boolean
}

/** What can be seen of the others. */
export interface Sighting {
  notes: readonly PeerNote[]
  beats: readonly (Beat | null)[]
  peers: readonly PeerProcess[]
  /** Observed ms without a new heartbeat, by rank. */
  silent: readonly number[]
  beatSeconds: number
}

/** 'unix-ms step phase...'; the time is on the clock of another host and says nothing here. */
export function parseBeat(rank: number, text: string): Beat {
  const [, step, ...phase] = text.split(' ')
  return { rank, step: Number(step), phase: phase.join(' ') }
}

/** `rank 1 on node7`; without the host while it is not known. */
export function nameOf(peers: readonly PeerProcess[], rank: number): string {
  const host = peers[rank]?.host
  return host === undefined ? `rank ${rank}` : `rank ${rank} on ${host}`
}

/**
 * The first of: the note of a rank that failed by itself; a process of this host that ended without a note; a silent rank; what
 * another rank found; the text of the transport.
 */
export function rootCause(sighting: Sighting, own: number, text: string): string {
  const { notes, beats, peers, silent, beatSeconds } = sighting
  const name = (rank: number) => nameOf(peers, rank)
  const others = notes.filter((one) => one.rank !== own)
  const note = others.find((one) => !one.afterPeer)
  if (note) return `${name(note.rank)} failed in step ${note.step} (${note.phase}): ${note.message}`
  const gone = [...peers.keys()].filter(
    (rank) => rank !== own && !others.some((one) => one.rank === rank) && !mayRun(peers[rank]!.host, peers[rank]!.pid),
  )
  if (gone.length > 0)
    return `${gone.map(name).join(', ')} ended without a message (killed?); ${lastSeen(beats, gone)}; ${text}`
  const quiet = [...silent.keys()].filter((rank) => rank !== own && silent[rank]! > 2000 * beatSeconds)
  if (quiet.length === 0) return others[0]?.message ?? text
  const words = quiet.map((rank) => `${name(rank)} silent for ${Math.round(silent[rank]! / 1000)} s`)
  return `${words.join(', ')} (stopped, or its host or the network is down); ${lastSeen(beats, quiet)}; ${text}`
}

function lastSeen(beats: readonly (Beat | null)[], ranks: readonly number[]): string {
  const known = ranks.flatMap((rank) => beats[rank] ?? [])
  return known.map((b) => `last phase of rank ${b.rank}: ${b.phase}, step ${b.step}`).join(', ') || 'no heartbeat of it'
}
