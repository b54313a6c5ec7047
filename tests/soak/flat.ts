// What a run holds in the middle of its steps and at their end.
import assert from 'node:assert/strict'

/** Bytes of resident memory, and what is known of them. */
interface Resident {
  rss: number
  heap: number
  blocks: number
  files: number
}

export interface Held extends Resident {
  step: number
  tensors: number
  handles: number
}

/** Garbage is collected at each of so many steps, and only those are compared. */
export const looks = 50

const known = { heap: 'JavaScript', blocks: 'blocks of tensors', files: 'mapped files' } as const
const mib = (bytes: number) => (bytes / 2 ** 20).toFixed(0)

/** Each part of the memory at two times. */
const partsOf = (from: Resident, to: Resident): string =>
  Object.entries(known)
    .map(([part, name]) => `${name} ${mib(from[part as keyof typeof known])} to ${mib(to[part as keyof typeof known])}`)
    .join(', ')

const least = (held: readonly Held[]): Resident => {
  const of = (part: keyof Resident) => Math.min(...held.map((one) => one[part]))
  return { rss: of('rss'), heap: of('heap'), blocks: of('blocks'), files: of('files') }
}

/** Where memory rose most from one look to the next. */
function largestRise(clean: readonly Held[]): string {
  const rise = (at: number) => clean[at]!.rss - clean[at - 1]!.rss
  let most = 1
  for (let at = 2; at < clean.length; at++) if (rise(at) > rise(most)) most = at
  const [from, to] = [clean[most - 1]!, clean[most]!]
  return `largest rise ${mib(to.rss - from.rss)} MiB, steps ${from.step} to ${to.step}: ${partsOf(from, to)}`
}

/** Throws where live tensors, open files or, of 1,000 steps or more, resident memory have grown from the third quarter to the last. */
export function flatness(held: readonly Held[]): string {
  const [from, to] = [held[Math.floor(held.length / 2)]!, held.at(-1)!]
  assert.equal(to.tensors, from.tensors, 'live tensors')
  assert.ok(to.handles <= from.handles + 2, `handles ${from.handles} to ${to.handles}`)
  const text = `steps ${from.step} to ${to.step}: ${to.tensors} live tensors, ${from.handles} to ${to.handles} handles`
  if (held.length < 1000) return text
  const clean = held.filter(({ step }) => step % looks === 0)
  const half = clean.slice(clean.length / 2)
  const [third, last] = [least(half.slice(0, half.length / 2)), least(half.slice(half.length / 2))]
  const growth = (100 * (last.rss - third.rss)) / third.rss
  const memory = `${mib(third.rss)} to ${mib(last.rss)} MiB, ${partsOf(third, last)}`
  assert.ok(growth < 1, `memory grew by ${growth.toFixed(2)} % in the last half: ${memory}; ${largestRise(half)}`)
  return `${text}, ${memory}`
}
