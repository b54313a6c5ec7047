// Debian and Ubuntu: installs packages with progress, as root or through passwordless sudo.
import { existsSync, readlinkSync } from 'node:fs'
import { triplet } from './find-torch.mjs'
import { capture, runAsync } from './progress.mjs'

/** The command prefix of apt-get (sudo), or null if apt-get cannot be used. */
export function aptPrefix() {
  if (!existsSync('/etc/debian_version') || !capture('apt-get', ['--version']).ok) return null
  if (process.getuid() === 0) return []
  return capture('sudo', ['-n', 'true']).ok ? ['sudo', '-n'] : null
}

/** The version apt would install, or null: lists not fetched yet, or no such package. */
export function candidate(name) {
  const text = capture('apt-cache', ['policy', name]).stdout
  const version = /Candidate: (\S+)/.exec(text)?.[1]
  return version && version !== '(none)' ? version : null
}

// without a disk flush after each of about 370 packages; one flush at the end instead
const settings = ['DPkg::Lock::Timeout=300', 'Dpkg::Use-Pty=0', 'Dpkg::Options::=--force-unsafe-io']
const quietly = ['-y', '--no-install-recommends', ...settings.flatMap((setting) => ['-o', setting])]

// lines of APT::Status-Fd: "dlstatus:3:45.2:Retrieving ..." and "pmstatus:libc6:12.5:Unpacking ..."
function statusLine(chunk) {
  const line = chunk.trim().split('\n').at(-1) ?? ''
  const [kind, , percent, text] = line.split(':')
  if (kind !== 'dlstatus' && kind !== 'pmstatus') return null
  return `  ${kind === 'dlstatus' ? 'download' : 'install'} ${Math.round(Number(percent))} %  ${(text ?? '').slice(0, 60)}`
}

async function apt(prefix, args, { tick }) {
  const [program, ...rest] = [...prefix, 'env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', ...args]
  if (prefix.length > 0) return runAsync(program, rest) // sudo closes descriptors above 2: no progress
  const onData = (chunk) => {
    const line = statusLine(chunk)
    if (line) tick(line)
  }
  return runAsync(program, [...rest, '-o', 'APT::Status-Fd=3'], { onData, stdio: ['ignore', 'pipe', 'pipe', 'pipe'] })
}

export const update = (prefix, progress) => apt(prefix, ['update', '-q'], progress)

/** Installs; on a failure fetches the lists once more, since old lists name files that no longer exist. */
export async function install(prefix, packages, progress) {
  progress.say(`apt-get install ${packages.join(' ')}${prefix.length > 0 ? ' (through sudo)' : ''}`)
  let done = await apt(prefix, ['install', ...quietly, ...packages], progress)
  if (!done.ok) {
    await update(prefix, progress)
    done = await apt(prefix, ['install', ...quietly, ...packages], progress)
  }
  await runAsync('sync', [])
  return done
}

/** Whether the system's libblas.so.3 is a slow reference BLAS (matmul about 10 times slower than with OpenBLAS). */
export function slowBlas() {
  try {
    return !/openblas|mkl|blis/.test(readlinkSync(`/etc/alternatives/libblas.so.3-${triplet}`))
  } catch (error) {
    if (error.code === 'ENOENT') return false
    throw error
  }
}
