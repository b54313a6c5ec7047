import { arch, cpus, hostname, platform, release, totalmem } from 'node:os'

/** What the machine is, for environment.json; `more` adds what only the engine knows (torch version, device). */
export function describeEnvironment(more: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
  return {
    node: process.version,
    system: `${platform()} ${arch()} ${release()}`,
    host: hostname(),
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memoryBytes: totalmem(),
    command: process.argv.slice(2),
    ...more,
  }
}
