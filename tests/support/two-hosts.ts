// Two hosts on one machine: network namespaces joined by a veth pair, each with its address and host name.
import { spawnSync } from 'node:child_process'

const run = (...words: string[]) => spawnSync(words[0]!, words.slice(1), { encoding: 'utf8' })

/** Why there are no two hosts here; false: there are. */
export const noHosts = missing()

function missing(): string | false {
  if (process.getuid?.() !== 0) return 'network namespaces need root'
  if (run('ip', '-V').status !== 0) return 'no ip here: apt-get install iproute2'
  const name = `rt-${process.pid}`
  const { status, stderr } = run('ip', 'netns', 'add', name)
  run('ip', 'netns', 'del', name)
  return status === 0 && run('unshare', '--uts', 'true').status === 0
    ? false
    : `no network namespaces here: ${stderr.trim()}`
}

export interface Hosts {
  readonly names: readonly [string, string]
  readonly addresses: readonly [string, string]
  /** Words in front of a command that runs on a host. */
  on(host: number): string[]
  /** Takes the network between them down, or up again. */
  link(state: 'down' | 'up'): void
  /** Delay and loss of the network; false if this kernel cannot. */
  slow(delay: string, loss: string): boolean
  close(): void
}

function must(...words: string[]): void {
  const { status, stderr } = run(...words)
  if (status !== 0) throw new Error(`${words.join(' ')}: ${stderr}`)
}

export function openHosts(): Hosts {
  const names = ['a', 'b'].map((letter) => `rt-${process.pid}-${letter}`) as [string, string]
  const addresses = ['10.77.0.1', '10.77.0.2'] as const
  const ends = ['a', 'b'].map((letter) => `v${process.pid}${letter}`)
  for (const name of names) must('ip', 'netns', 'add', name)
  must('ip', 'link', 'add', ends[0]!, 'netns', names[0], 'type', 'veth', 'peer', 'name', ends[1]!, 'netns', names[1])
  for (const [i, name] of names.entries()) {
    must('ip', '-n', name, 'address', 'add', `${addresses[i]}/24`, 'dev', ends[i]!)
    for (const device of ['lo', ends[i]!]) must('ip', '-n', name, 'link', 'set', device, 'up')
  }
  return {
    names,
    addresses,
    on: (host) => {
      const named = `hostname ${names[host]} && exec "$@"`
      return ['ip', 'netns', 'exec', names[host]!, 'unshare', '--uts', 'sh', '-c', named, 'sh']
    },
    link: (state) => must('ip', '-n', names[1], 'link', 'set', ends[1]!, state),
    slow: (delay, loss) => {
      const words = ['qdisc', 'add', 'dev', ends[0]!, 'root', 'netem', 'delay', delay, 'loss', loss]
      return run('tc', '-n', names[0], ...words).status === 0
    },
    close: () => {
      for (const name of names) run('ip', 'netns', 'del', name)
    },
  }
}
