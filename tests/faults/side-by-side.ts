// Rows in separate processes with separate folders: a row may change what its whole process sees.
import { spawn } from 'node:child_process'
import { Gate } from '../../src/rewards/judge/flow.ts'
import { ownProgram } from '../support/own-program.ts'
import type { Row, Shown } from './row.ts'

const main = ownProgram('./main.ts', import.meta.url)

/** The quick rows together, in one process; each of the others alone. In the order of the rows. */
export async function sideBySide(rows: readonly Row[], jobs: number, print: (result: Shown) => void): Promise<Shown[]> {
  const quick = rows.filter((row) => row.quick)
  const groups = [...rows.filter((row) => !row.quick).map((row) => [row]), ...(quick.length > 0 ? [quick] : [])]
  const gate = new Gate(jobs)
  const shown = await Promise.all(
    groups.map(async (group) => {
      const results = await gate.run(() => inProcess(group))
      results.forEach(print)
      return results
    }),
  )
  return rows.map((row) => shown.flat().find(({ name }) => name === row.name)!)
}

async function inProcess(rows: readonly Row[]): Promise<Shown[]> {
  const names = rows.map((row) => row.name).join(',')
  const args = [...main, '--json', '--only', names]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  let [out, err] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    err += text
  })
  const from = performance.now()
  const end = await new Promise<number | string | null>((done) =>
    child.on('close', (code, signal) => done(signal ?? code)),
  )
  try {
    return JSON.parse(out.slice(out.indexOf('[\n'))) as Shown[]
  } catch {
    const seen = `the process of the row ended with ${end}: ${err.slice(-300)}`
    const seconds = Math.round((performance.now() - from) / 100) / 10
    return rows.map(({ number, name, fault, promise }) => {
      return { number, name, fault, promise, state: 'failed', seen, seconds }
    })
  }
}
