// `roundtrip watch` as a separate process, for benchmarks.
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

export const program = fileURLToPath(new URL('../bin/roundtrip.mjs', import.meta.url))

export async function serveRuns(folder: string) {
  const server = spawn(process.execPath, [program, 'watch', folder, '--port', '0'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const url = await new Promise<string>((done, fail) => {
    server.stdout.once('data', (bytes: Buffer) => done(String(bytes).trim()))
    server.once('close', (code) => fail(new Error(`watch ended with ${code}`)))
  })
  return { url, pid: server.pid!, close: () => void server.kill() }
}

/** CPU seconds of a process; a tick is 10 ms on Linux. */
export function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ').at(-1)!.split(' ')
  return (Number(fields[11]) + Number(fields[12])) / 100
}
