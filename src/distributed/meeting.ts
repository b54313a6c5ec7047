// How processes find each other: the store of rank 0, what every process registers there, and the address that the others connect to.
import { createSocket } from 'node:dgram'
import { lookup } from 'node:dns/promises'
import { connect } from 'node:net'
import { hostname, networkInterfaces } from 'node:os'
import { log, Mismatch, messageOf, pause, tryJsonObject } from '../core/index.ts'
import { native } from '../engine/index.ts'
import type { Meeting, Rank } from './environment.ts'
import { Disagreement, PeerFailure } from './failure.ts'
import { type Liveness, within } from './liveness.ts'
import { nameOf, type PeerProcess } from './root-cause.ts'

/** What must be the same on all ranks, by name: versions, settings, hashes of files. */
export type Facts = Readonly<Record<string, string>>

/** Found by every process before it meets the others; read files are read once. */
export type FindFacts = () => Promise<Facts>

interface Registration extends PeerProcess {
  facts: Facts
}

/** Seconds that an address may be unreachable, and a store silent, before it counts as the wrong one. */
const patience = 20
/** Seconds between two lines about what is waited for. */
const reportEvery = 15

export async function openStore(place: Rank, meeting: Meeting, seconds: number): Promise<number> {
  const ms = seconds * 1000
  // the file is removed when so many have closed it, and every process opens it twice
  if (meeting.kind === 'file') return native().fileStore(meeting.path, 2 * place.size, place.prefix, ms)
  const { host, port, server } = meeting
  if (!server) await reach(meeting, seconds)
  try {
    const opened = native().tcpStore(server ? '127.0.0.1' : host, port, server ? 1 : 0, place.size, place.prefix, ms)
    const store = await (server ? opened : within(opened, 1000 * patience))
    if (server) await reach(meeting, patience)
    return store
  } catch (error) {
    throw error instanceof Mismatch ? error : notOpened(meeting, error)
  }
}

type TcpMeeting = Extract<Meeting, { kind: 'tcp' }>

function notOpened({ host, port, server }: TcpMeeting, error: unknown): Mismatch {
  const torch = native().info().version
  const foreign = `rank 0 must run there with the torch of this process (${torch}); another program on the port answers otherwise`
  const hint = server ? 'another run may use this port; set MASTER_PORT' : foreign
  const expected = server ? 'a free port' : 'the store of rank 0'
  return new Mismatch({ where: 'world', field: fieldOf(host, port), expected, got: error, hint })
}

const fieldOf = (host: string, port: number) => `MASTER_ADDR=${host} MASTER_PORT=${port}`

/** Until the port can be connected to. A refused connection may come before rank 0 has started; a host that is not there has no such excuse. */
async function reach({ host, port, server }: TcpMeeting, seconds: number): Promise<void> {
  const startedAt = performance.now()
  const waited = () => (performance.now() - startedAt) / 1000
  for (let reports = 1; ; ) {
    const problem = await connectionProblem(host, port)
    if (problem === null) return
    const isRefused = problem.includes('ECONNREFUSED') && !server
    if (waited() > (isRefused ? seconds : Math.min(seconds, patience))) throw unreachable(host, port, problem, server)
    if (waited() > reports * reportEvery && reports++) log.warn(`waiting for rank 0 at ${host}:${port}: ${problem}`)
    await pause(250)
  }
}

function unreachable(host: string, port: number, problem: string, server: boolean): Mismatch {
  const own = `${hostname()} (${ownAddresses().join(', ')})`
  const hint = server
    ? `this process is rank 0 and listens on ${own}; MASTER_ADDR must lead to it`
    : `MASTER_ADDR must be the host of rank 0, which must run; its port must be reachable from ${own}`
  const expected = 'the store of rank 0'
  return new Mismatch({ where: 'world', field: fieldOf(host, port), expected, got: problem, hint })
}

/** Null: a connection was accepted, and closed again. */
function connectionProblem(host: string, port: number): Promise<string | null> {
  return new Promise((done) => {
    const socket = connect({ host, port, timeout: 5000 })
    const end = (problem: string | null) => {
      socket.destroy()
      done(problem)
    }
    socket.once('connect', () => end(null))
    socket.once('timeout', () => end('no answer within 5 s'))
    socket.once('error', (error) => end(messageOf(error)))
  })
}

/** Every process registers. An error names the ranks that are missing at the time limit, or the first fact that differs. */
export async function meet(place: Rank, liveness: Liveness, facts: Facts, seconds: number): Promise<PeerProcess[]> {
  const { rank, size } = place
  const own: Registration = { host: hostname(), pid: process.pid, facts: { 'world size': String(size), ...facts } }
  await answered(liveness.set(`process/${rank}`, JSON.stringify(own)), place)
  const startedAt = performance.now()
  const texts: (string | null)[] = new Array(size).fill(null)
  const absent = () => texts.flatMap((text, r) => (text === null ? [r] : [])).join(', ')
  for (let reports = 1; texts.includes(null); ) {
    for (let r = 0; r < size; r++) texts[r] ??= await answered(liveness.get(`process/${r}`), place)
    if (!texts.includes(null)) break
    const waited = (performance.now() - startedAt) / 1000
    if (waited > seconds) throw new PeerFailure(`after ${seconds} s ranks ${absent()} of ${size} had not come`)
    if (waited > reports * reportEvery && reports++) log.warn(`waiting for ranks ${absent()} of ${size}`)
    await pause(20)
  }
  const all = texts.map((text) => ({ ...tryJsonObject(text!) }) as Partial<Registration> as Registration)
  requireSameFacts(all)
  return all.map(({ host, pid }) => ({ host, pid }))
}

/** A program that is not a store accepts connections too, and never answers. */
async function answered<T>(work: Promise<T>, { meeting }: Rank): Promise<T> {
  try {
    return await within(work, 1000 * patience)
  } catch (error) {
    throw meeting?.kind === 'tcp' ? notOpened({ ...meeting, server: false }, error) : error
  }
}

function requireSameFacts(all: readonly Registration[]): void {
  const [first = {}, ...rest] = all.map(({ facts }) => facts ?? {}) // none: another program wrote into the store
  for (const [rank, facts] of [first, ...rest].entries()) {
    const name = [...Object.keys(first), ...Object.keys(facts)].find((key) => facts[key] !== first[key])
    if (name === undefined) continue
    const hint = 'start every rank with the same command, product, torch, model and data'
    throw new Disagreement({
      where: nameOf(all, rank),
      field: name,
      expected: `${first[name] ?? 'none'}, as on ${nameOf(all, 0)}`,
      got: facts[name] ?? 'none',
      hint,
    })
  }
}

const ownAddresses = () =>
  Object.values(networkInterfaces()).flatMap((all) => (all ?? []).filter((one) => !one.internal).map((o) => o.address))

/** The address of this host that the others can reach. */
export async function ownAddress(place: Rank, meeting: Meeting): Promise<string> {
  const named = process.env['GLOO_SOCKET_IFNAME']
  if (named) return `interface:${named}`
  if (meeting.kind === 'file') return '127.0.0.1'
  const route = await routeTo(meeting.host, meeting.port)
  const oneHost = place.size <= place.localSize
  if (oneHost || !isLoopback(route)) return route
  // the name of this host leads to loopback here, as on many Debian systems, and other hosts cannot follow
  return ownAddresses().find((address) => address.includes('.')) ?? route
}

const isLoopback = (address: string) => address.startsWith('127.') || address === '::1'

/** The own address on the way to a host; nothing is sent. */
async function routeTo(host: string, port: number): Promise<string> {
  const { address, family } = await lookup(host)
  const socket = createSocket(family === 6 ? 'udp6' : 'udp4')
  try {
    await new Promise<void>((done, failed) => {
      socket.once('error', failed)
      socket.connect(port, address, () => done())
    })
    return socket.address().address
  } finally {
    socket.close()
  }
}
