import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { setPriority } from 'node:os'
import { join } from 'node:path'
import { Command } from 'commander'
import { log, Mismatch, makeFolder, packageRoot } from '../core/index.ts'
import type { WatchOptions } from '../dashboard/index.ts'

const firstPort = 7007
const portsTried = 20

interface Options {
  host: string
  port?: string
  token?: string
  open?: boolean
}

/** `roundtrip watch [RUNS...]`: a page that follows runs while they train; prints its address and serves until it is stopped. */
export function command(): Command {
  return new Command('watch')
    .description('a live page about runs: curves, evaluations, rollouts with their masks; reads run folders only')
    .argument('[runs...]', 'run folders, or folders of run folders (default: runs)')
    .option('--host <address>', 'address to listen on; any other than loopback asks for a token', '127.0.0.1')
    .option('--port <number>', `port to listen on, 0 for any (default: the first free one from ${firstPort})`)
    .option('--token <text>', 'token of the page (default with --host: a new one)')
    .option('--open', 'open the page in a browser')
    .action(watch)
}

async function watch(runs: readonly string[], options: Options): Promise<void> {
  const { isLoopback } = await import('../dashboard/index.ts')
  const port = options.port === undefined ? undefined : Number(options.port)
  if (port !== undefined && (!Number.isInteger(port) || port < 0 || port > 65_535))
    throw new Mismatch({ where: 'watch', field: '--port', expected: 'a number from 0 to 65535', got: options.port })
  setPriority(10) // a run on the same machine comes first
  if (runs.length === 0) makeFolder('runs')
  const server = await serveAt(port, {
    folders: runs.length > 0 ? runs : ['runs'],
    page: join(packageRoot(), 'assets', 'watch'),
    address: options.host,
    token: options.token ?? (isLoopback(options.host) ? undefined : randomBytes(24).toString('base64url')),
  })
  process.stdout.write(`${server.url}\n`)
  if (!isLoopback(options.host)) log.warn('the page is open to everyone who knows this address with its token')
  if (options.open) openBrowser(server.url)
  await new Promise<void>((done) => {
    for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(name, () => done())
  })
  await server.close()
}

/** At the asked port, or at the first free one. */
async function serveAt(port: number | undefined, target: Omit<WatchOptions, 'port'>) {
  const { startWatch } = await import('../dashboard/index.ts')
  for (let at = port ?? firstPort; ; at++) {
    try {
      return await startWatch({ ...target, port: at })
    } catch (error) {
      const { code, syscall } = error as NodeJS.ErrnoException
      if (code === 'EADDRINUSE' && port === undefined && at < firstPort + portsTried) continue
      if (syscall !== 'listen' && syscall !== 'getaddrinfo') throw error
      const where = `${target.address}:${at}`
      throw new Mismatch({ where, expected: 'a free port', got: code, hint: 'choose another with --port' })
    }
  }
}

/** What the page's process needs: it answers a network and reads files of others, so it gets no keys. */
const served = /^(PATH|HOME|TZ|TMPDIR|LANG|LD_LIBRARY_PATH|(LC|NODE|ROUNDTRIP|XDG)_\w+)$/

/** The same page from a separate process, for a command that trains: serving it does not slow down the run. */
export async function watchBeside(folder: string): Promise<{ url: string; close(): void }> {
  makeFolder(folder)
  const program = join(packageRoot(), 'bin', 'roundtrip.mjs')
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => served.test(name)))
  const child = spawn(process.execPath, [program, 'watch', folder], { env, stdio: ['ignore', 'pipe', 'inherit'] })
  const url = await new Promise<string>((done, fail) => {
    child.stdout.setEncoding('utf8').once('data', (text: string) => done(text.trim()))
    child.once('error', fail)
    child.once('close', (code) => fail(new Error(`the live page ended with ${code}`)))
  })
  child.unref()
  process.once('exit', () => child.kill())
  return { url, close: () => void child.kill() }
}

/** The desktop's own opener; a machine without one shows the address, which is printed anyway. */
export function openBrowser(url: string): void {
  const child = spawn(process.platform === 'darwin' ? 'open' : 'xdg-open', [url], { stdio: 'ignore', detached: true })
  child.on('error', () => {})
  child.unref()
}
