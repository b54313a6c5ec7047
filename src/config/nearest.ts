/** Edits that turn one word into another: insert, delete, replace, or swap two neighbours. */
export function distance(a: string, b: string): number {
  let before: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1]
      let best = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + (same ? 0 : 1))
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) best = Math.min(best, before[j - 2]! + 1)
      row.push(best)
    }
    before = last
    last = row
  }
  return last[b.length]!
}

const plain = (name: string) => name.toLowerCase().replace(/[-_]/g, '')

/** What a name costs that has the whole word at its beginning or end: `steps` finds `maxSteps`, `batch` `batchSize`. */
const held = 1.5
const shortestHeld = 4

/**
 * The name closest to what was typed; undefined if more than half of the word would have to change. A name's last part counts as
 * itself, so that `numGenerations` finds `rl.numGenerations`.
 */
export function nearest(typed: string, names: readonly string[]): string | undefined {
  let best: { name: string; cost: number } | undefined
  const word = plain(typed)
  for (const name of names) {
    const whole = distance(word, plain(name))
    const last = name.slice(name.lastIndexOf('.') + 1)
    const initials = last.replace(/(?<=.)[^A-Z]/g, '').toLowerCase() // `lr` finds `learningRate`
    const end = word === initials ? 1 : distance(word, plain(last)) + (name.includes('.') ? 0.5 : 0)
    const isPart = plain(name).endsWith(word) || plain(last).startsWith(word)
    const part = word.length >= shortestHeld && isPart ? held + name.length / 100 : whole
    const cost = Math.min(whole, end, part)
    if (!best || cost < best.cost) best = { name, cost }
  }
  return best && best.cost <= Math.max(1, word.length / 2) ? best.name : undefined
}
