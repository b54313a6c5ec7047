// Downloads from a Hugging Face hub into its cache. A file is in the cache under its hash, and only after the hash was checked; a
// snapshot links to such files. The token goes to the endpoint alone, and no message has it or a signed address.
import { createHash } from 'node:crypto'
import { createReadStream, existsSync, renameSync, rmSync, statSync, symlinkSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  addFolder,
  atomicWrite,
  type HubKind,
  Mismatch,
  messageOf,
  minSecretLength,
  parseJson,
  readBody,
  redactor,
  repositoryFolder,
} from '../core/index.ts'

export interface PullOptions {
  kind: HubKind
  id: string
  revision: string
  endpoint: string
  token: string | null
  /** After each part: bytes on disk of all, the file at work. */
  onProgress(done: number, total: number, file: string): void
  /** First wait before another attempt; it doubles. */
  retryMs?: number
  /** Milliseconds without a byte after which a connection counts as broken. */
  stallMs?: number
}

interface HubFile {
  path: string
  size: number
  /** SHA-256 of a large file, else the SHA-1 of git's blob: the name in the cache. */
  hash: string
}

const attempts = 5
const maxRedirects = 5
/** A list takes about 300 bytes a file. */
const maxListBytes = 1 << 27
const defaultStallMs = 60_000

/** Transient: another attempt may succeed. */
class BrokenConnection extends Error {}

/** More bytes than the hub says: nothing of the file can be used. */
class TooLarge extends Mismatch {}

/** Downloads what is missing; returns the folder of the snapshot. The hub may write the token back: no message has it. */
export async function pullRepository(options: PullOptions): Promise<string> {
  const redact = redactor([options.token ?? undefined])
  const onProgress: PullOptions['onProgress'] = (done, all, file) => options.onProgress(done, all, redact(file))
  try {
    return await download({ ...options, onProgress })
  } catch (error) {
    if (!(error instanceof Error)) throw error
    throw Object.assign(error, { message: redact(error.message), stack: redact(error.stack ?? ''), cause: undefined })
  }
}

async function download(options: PullOptions): Promise<string> {
  const { kind, id, revision } = options
  const { commit, files } = await listFiles(options)
  const repository = repositoryFolder(kind, id)
  const snapshot = join(repository, 'snapshots', commit)
  const total = files.reduce((sum, file) => sum + file.size, 0)
  let done = 0
  for (const file of files) {
    const blob = join(repository, 'blobs', file.hash)
    const report = (bytes: number) => options.onProgress(done + bytes, total, file.path)
    if (!existsSync(blob) || statSync(blob).size !== file.size) await fetchFile(options, commit, file, blob, report)
    done += file.size
    options.onProgress(done, total, file.path)
  }
  // after all files: whoever finds a snapshot finds a whole one
  for (const { path, hash } of files) link(join(snapshot, ...path.split('/')), join(repository, 'blobs', hash))
  addFolder(dirname(join(repository, 'refs', revision)))
  atomicWrite(join(repository, 'refs', revision), commit)
  return snapshot
}

function link(path: string, blob: string): void {
  addFolder(dirname(path))
  rmSync(path, { force: true })
  symlinkSync(relative(dirname(path), blob), path)
}

async function listFiles(options: PullOptions): Promise<{ commit: string; files: HubFile[] }> {
  const { kind, id, revision, endpoint, token, stallMs = defaultStallMs } = options
  const url = `${endpoint}/api/${kind}/${id}/revision/${encodeURIComponent(revision)}?blobs=true`
  const { text, whole } = await withRetries(options, async () => {
    const reply = await request(options, url, {}, AbortSignal.timeout(5 * stallMs))
    return await readBody(reply, maxListBytes).catch((error) => {
      throw new BrokenConnection(messageOf(error))
    })
  })
  if (!whole) throw new Mismatch({ where: id, expected: `a list of up to ${maxListBytes} bytes`, got: 'more' })
  const { sha, siblings } = (parseJson(text, id) ?? {}) as { sha?: unknown; siblings?: unknown }
  if (typeof sha !== 'string' || !/^[0-9a-f]{40}$/.test(sha) || !Array.isArray(siblings))
    throw new Mismatch({ where: id, expected: 'a commit and its files', got: text.slice(0, 200) })
  const files = siblings.map((entry) => hubFile(id, entry))
  const names = `${sha} ${JSON.stringify(files)}`.toLowerCase() // in the cache
  if (token && token.length >= minSecretLength && names.includes(token.toLowerCase()))
    throw new Mismatch({ where: id, field: 'siblings', expected: 'names of files', got: 'the token' })
  return { commit: sha, files }
}

interface Sibling {
  rfilename?: unknown
  size?: unknown
  blobId?: unknown
  lfs?: { sha256?: unknown; size?: unknown } | null
}

/** Names and hashes become paths: nothing else than plain names and hexadecimal digits is accepted. */
function hubFile(where: string, entry: Sibling | null): HubFile {
  const { rfilename: path, lfs } = entry ?? {}
  const [size, hash] = lfs ? [lfs.size, lfs.sha256] : [entry?.size, entry?.blobId]
  const isName = (part: string) => part !== '' && !/^\.{1,2}$/.test(part) && !/[\\\u0000-\u001f]/.test(part)
  const isPath = typeof path === 'string' && path.split('/').every(isName)
  const isHash = typeof hash === 'string' && (lfs ? /^[0-9a-f]{64}$/ : /^[0-9a-f]{40}$/).test(hash)
  if (isPath && isHash && Number.isSafeInteger(size) && (size as number) >= 0)
    return { path, size: size as number, hash }
  throw new Mismatch({ where, field: 'siblings', expected: 'a relative path, a size and a hash', got: entry })
}

/** Resumes what an earlier attempt left. A file whose hash is wrong is removed. */
async function fetchFile(
  options: PullOptions,
  commit: string,
  file: HubFile,
  blob: string,
  report: (bytes: number) => void,
): Promise<void> {
  const part = `${blob}.incomplete`
  addFolder(dirname(blob))
  try {
    await withRetries(options, () => append(options, commit, file, part, report))
  } catch (error) {
    if (error instanceof TooLarge) rmSync(part)
    throw error
  }
  const got = await hashOf(part, file)
  if (got === file.hash) return renameSync(part, blob)
  rmSync(part)
  const where = `${options.id}/${file.path}`
  throw new Mismatch({ where, field: 'hash', expected: file.hash, got, hint: 'the file was removed; start again' })
}

async function append(
  options: PullOptions,
  commit: string,
  file: HubFile,
  part: string,
  report: (bytes: number) => void,
): Promise<void> {
  let have = existsSync(part) ? statSync(part).size : 0
  if (have > file.size) have = 0
  if (have === file.size && have > 0) return
  const prefix = options.kind === 'datasets' ? 'datasets/' : ''
  const path = file.path.split('/').map(encodeURIComponent).join('/')
  const url = `${options.endpoint}/${prefix}${options.id}/resolve/${commit}/${path}`
  const stall = new AbortController()
  const timer = setTimeout(() => stall.abort(), options.stallMs ?? defaultStallMs)
  try {
    const reply = await request(options, url, have > 0 ? { range: `bytes=${have}-` } : {}, stall.signal)
    if (have > 0 && !reply.headers.get('content-range')?.startsWith(`bytes ${have}-`)) have = 0 // sent from the start
    const out = await open(part, have > 0 ? 'r+' : 'w')
    const onBytes = (bytes: number) => {
      timer.refresh()
      report(bytes)
    }
    await copyBody(reply, out, have, file, onBytes).finally(() => out.close())
  } finally {
    clearTimeout(timer)
  }
}

async function copyBody(
  reply: Response,
  out: Awaited<ReturnType<typeof open>>,
  from: number,
  { path, size }: HubFile,
  report: (bytes: number) => void,
): Promise<void> {
  let at = from
  try {
    for await (const chunk of reply.body ?? []) {
      if (at + chunk.length > size)
        throw new TooLarge({ where: path, field: 'size', expected: `${size} bytes`, got: 'more' })
      await out.write(chunk, 0, chunk.length, at)
      at += chunk.length
      report(at)
    }
  } catch (error) {
    if (error instanceof Mismatch || (error as NodeJS.ErrnoException).syscall === 'write') throw error
    throw new BrokenConnection(messageOf(error))
  }
  if (at < size) throw new BrokenConnection(`the connection ended after ${at} of ${size} bytes`)
}

async function hashOf(path: string, { size, hash }: HubFile): Promise<string> {
  const sum = hash.length === 64 ? createHash('sha256') : createHash('sha1').update(`blob ${size}\0`)
  for await (const chunk of createReadStream(path)) sum.update(chunk as Buffer)
  return sum.digest('hex')
}

async function withRetries<T>({ id, retryMs = 1000 }: PullOptions, work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof BrokenConnection)) throw error
      const hint = 'start the same command again: it resumes'
      if (attempt === attempts) throw new Mismatch({ where: id, expected: 'a connection', got: error.message, hint })
      await sleep(retryMs * 2 ** (attempt - 1))
    }
  }
}

/** Follows redirects; the token stays with the endpoint's origin. */
async function request(
  { id, endpoint, token }: PullOptions,
  url: string,
  headers: Readonly<Record<string, string>>,
  signal?: AbortSignal,
): Promise<Response> {
  let at = new URL(url)
  for (let hop = 0; hop <= maxRedirects; hop++) {
    const own: Record<string, string> =
      token && at.origin === new URL(endpoint).origin ? { authorization: `Bearer ${token}` } : {}
    const all = { 'accept-encoding': 'identity', ...headers, ...own }
    const reply = await fetch(at, { headers: all, redirect: 'manual', signal }).catch((error) => {
      throw new BrokenConnection(messageOf((error as Error).cause ?? error))
    })
    const to = reply.status >= 300 && reply.status < 400 ? reply.headers.get('location') : null
    if (to === null) return checked(reply, id, endpoint)
    await reply.body?.cancel()
    at = redirectTarget(id, to, at)
  }
  throw new Mismatch({ where: id, expected: `at most ${maxRedirects} redirects`, got: 'more' })
}

/** Never from https to another protocol. The address may be signed, so it is not shown. */
function redirectTarget(where: string, to: string, from: URL): URL {
  const url = URL.canParse(to, from.href) ? new URL(to, from) : null
  const isSafe = url && ['https:', from.protocol].includes(url.protocol) && !url.username && !url.password
  if (isSafe) return url
  throw new Mismatch({ where, expected: 'a redirect to an https address', got: 'another, which is not shown' })
}

async function checked(reply: Response, id: string, endpoint: string): Promise<Response> {
  const { status } = reply
  if (status === 200 || status === 206) return reply
  await reply.body?.cancel()
  if (status === 429 || status >= 500) throw new BrokenConnection(`status ${status}`)
  const hint =
    status === 404
      ? 'check the id; a dataset needs --dataset'
      : `set HF_TOKEN to a token that may read it, and accept the terms at ${endpoint}/${id}`
  throw new Mismatch({ where: id, expected: 'a repository that can be read', got: `status ${status}`, hint })
}
