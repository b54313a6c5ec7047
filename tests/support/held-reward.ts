// A reward that a test can hold: a process that must still be running when something else happens waits in its scoring.
import { readdirSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'

export interface HeldReward {
  /** For `--reward`. Every group has spread, whatever the model says: the sample's number decides. */
  readonly path: string
  /** From now on every process waits once it has scored `after` samples. */
  hold(): void
  release(): void
  /** How many processes have come to wait. */
  waiting(): number
}

export function heldReward(path: string, after: number): HeldReward {
  const held = `${path}.held`
  writeFileSync(
    path,
    `import { existsSync, writeFileSync } from 'node:fs'
let calls = 0
const pause = () => new Promise((done) => setTimeout(done, 20))
async function score({ id }) {
  if (calls++ >= ${after} && existsSync(${JSON.stringify(held)})) {
    writeFileSync(${JSON.stringify(`${held}-`)} + process.pid, '')
    while (existsSync(${JSON.stringify(held)})) await pause()
  }
  return (1 + Number(id.split('#').at(-1))) / 10
}
export const reward = { name: 'spread', range: [0, 1], doc: 'by number', score }
`,
  )
  const waits = () => readdirSync(dirname(path)).filter((name) => name.startsWith(`${basename(held)}-`))
  return {
    path,
    hold() {
      for (const name of waits()) rmSync(join(dirname(path), name))
      writeFileSync(held, '')
    },
    release: () => rmSync(held, { force: true }),
    waiting: () => waits().length,
  }
}
