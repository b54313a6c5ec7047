// Regular expressions of a tokenizer.json are untrusted, and JavaScript evaluates them by backtracking: some would never end. Patterns
// whose cost can grow exponentially are rejected; the others run with a time limit.
import { createContext, Script } from 'node:vm'
import { Mismatch, messageOf } from '../core/index.ts'

const maxLength = 20_000
/** Repetitions up to this count as fixed. */
const fewTimes = 10

/** Length of the quantifier at a place, and whether it repeats often. */
function quantifierAt(pattern: string, at: number): { length: number; often: boolean } | null {
  const c = pattern[at]
  if (c === '*' || c === '+' || c === '?') return { length: 1, often: c !== '?' }
  const counts = /^\{(\d+)(,(\d*))?\}/.exec(pattern.slice(at, at + 40))
  if (!counts) return null
  const most = counts[2] === undefined ? Number(counts[1]) : counts[3] === '' ? Infinity : Number(counts[3])
  return { length: counts[0].length, often: most > fewTimes }
}

/** Position after the character class that begins at a position. */
function classEnd(pattern: string, at: number): number {
  let i = at + 1
  while (i < pattern.length && pattern[i] !== ']') i += pattern[i] === '\\' ? 2 : 1
  return i + 1
}

/** What makes a pattern refused: repeated repetitions, or a reference to what was found; null when neither. */
export function whyUnsafe(pattern: string): string | null {
  if (pattern.length > maxLength) return `${pattern.length} characters`
  const open: { repeats: boolean }[] = [{ repeats: false }]
  for (let at = 0; at < pattern.length; ) {
    const c = pattern[at]!
    let repeats = false // inside the part that ends here
    if (c === '\\') {
      if (/[1-9k]/.test(pattern[at + 1] ?? '')) return 'a reference to an earlier group'
      at += 2
    } else if (c === '[') at = classEnd(pattern, at)
    else if (c === '(') {
      open.push({ repeats: false })
      at++
      continue
    } else if (c === ')' && open.length > 1) {
      repeats = open.pop()!.repeats
      at++
    } else at++
    const quantifier = quantifierAt(pattern, at)
    if (quantifier?.often && repeats) return `a repetition of repetitions at character ${at}`
    const here = open.at(-1)!
    here.repeats ||= repeats || (quantifier?.often ?? false)
    at += quantifier?.length ?? 0
  }
  return null
}

/** Every pattern under a key `Regex`, at any depth. */
export function checkPatterns(value: unknown, where: string, field = ''): void {
  if (typeof value !== 'object' || value === null) return
  for (const [key, inner] of Object.entries(value)) {
    const path = field === '' ? key : `${field}.${key}`
    if (path === 'model.vocab' || path === 'model.merges') continue
    if (key !== 'Regex') checkPatterns(inner, where, path)
    else {
      const why = typeof inner === 'string' ? whyUnsafe(inner) : `${typeof inner}`
      if (why === null) continue
      const expected = 'a pattern whose cost does not explode'
      throw new Mismatch({ where, field: path, expected, got: why, hint: 'repetitions inside repetitions are refused' })
    }
  }
}

const box: { work: () => unknown } = { work: () => undefined }
const context = createContext(box)
const script = new Script('work()')

/** Runs work that must end: after `ms` it is broken off. */
export function withinTime<T>(ms: number, where: string, work: () => T): T {
  const before = box.work
  box.work = work
  try {
    return script.runInContext(context, { timeout: ms }) as T
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw error
    const hint = 'a pattern of the tokenizer takes too long on this text'
    throw new Mismatch({ where, expected: `an answer within ${ms / 1000} s`, got: messageOf(error), hint })
  } finally {
    box.work = before
  }
}
