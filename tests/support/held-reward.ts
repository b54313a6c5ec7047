// A reward that a test can hold: a process that must still be running when something else happens waits in its scoring.
import { rmSync, writeFileSync } from 'node:fs'

export interface HeldReward {
  /** For `--reward`. Every group has spread, whatever the model says: the sample's number decides. */
  readonly path: string
  /** From now on every process waits once it has scored `after` samples. */
  hold(): void
  release(): void
}

export function heldReward(path: string, after: number): HeldReward {
  const held = `${path}.held`
  writeFileSync(
    path,
    `import { existsSync } from 'node:fs'
let calls = 0
const pause = () => new Promise((done) => setTimeout(done, 20))
async function score({ id }) {
  if (calls++ >= ${after}) while (existsSync(${JSON.stringify(held)})) await pause()
  return (1 + Number(id.split('#').at(-1))) / 10
}
export const reward = { name: 'spread', range: [0, 1], doc: 'by number', score }
`,
  )
  return { path, hold: () => writeFileSync(held, ''), release: () => rmSync(held, { force: true }) }
}
