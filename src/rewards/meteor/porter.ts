// Porter stemmer as NLTK runs it by default (mode NLTK_EXTENSIONS). Words are arrays of code points: an emoji is one letter.
// Every character that is not a vowel is a consonant, digits and punctuation included.
import { pairsOf } from './tokens.ts'

type Word = readonly number[]
/** What must hold for the word without the suffix. */
type Condition = (rest: Word, word: Word) => boolean
type Rule = readonly [suffix: string, replacement: string, condition: Condition]

const irregular = new Map(
  pairsOf(
    'sky>sky skies>sky dying>die lying>lie tying>tie news>news inning>inning innings>inning outing>outing outings>outing ' +
      'canning>canning cannings>canning howe>howe proceed>proceed exceed>exceed succeed>succeed',
  ),
)

const vowels = new Set(toWord('aeiou'))
const [d, e, l, s, t, w, x, y, z, star] = toWord('delstwxyz*')

function toWord(text: string): number[] {
  return Array.from(text, (c) => c.codePointAt(0)!)
}

function toText(word: Word): string {
  let text = ''
  for (const c of word) text += String.fromCodePoint(c)
  return text
}

function ends(word: Word, suffix: string): boolean {
  const start = word.length - suffix.length
  if (start < 0) return false
  for (let i = 0; i < suffix.length; i++) if (word[start + i] !== suffix.charCodeAt(i)) return false
  return true
}

function replaceEnd(word: Word, count: number, replacement: string): Word {
  const rest = word.slice(0, word.length - count)
  for (let i = 0; i < replacement.length; i++) rest.push(replacement.charCodeAt(i))
  return rest
}

/** Which letters are consonants. `y` is one at the start and after a vowel. */
function consonants(word: Word): boolean[] {
  const out: boolean[] = []
  for (const c of word) out.push(c === y ? out.length === 0 || !out.at(-1) : !vowels.has(c))
  return out
}

/** m in [C](VC)^m[V]. */
function measure(word: Word): number {
  const kinds = consonants(word)
  let count = 0
  for (let i = 1; i < kinds.length; i++) if (kinds[i] && !kinds[i - 1]) count++
  return count
}

function endsDouble(word: Word): boolean {
  const n = word.length
  return n >= 2 && word[n - 1] === word[n - 2] && consonants(word)[n - 1]!
}

/** Consonant, vowel, consonant other than w, x, y at the end; NLTK adds words that are just vowel and consonant. */
function endsCvc(word: Word): boolean {
  const n = word.length
  const kinds = consonants(word)
  if (n === 2) return !kinds[0] && kinds[1]!
  const last = word[n - 1]
  return n >= 3 && kinds[n - 3]! && !kinds[n - 2]! && kinds[n - 1]! && last !== w && last !== x && last !== y
}

const always: Condition = () => true
const someMeasure: Condition = (rest) => measure(rest) > 0
const moreMeasure: Condition = (rest) => measure(rest) > 1

function rules(condition: Condition, table: string): Rule[] {
  return pairsOf(table).map(([suffix, replacement]) => [suffix, replacement, condition])
}

/** The first rule whose suffix fits decides, also when its condition fails. */
function apply(list: readonly Rule[], word: Word): Word {
  for (const [suffix, replacement, condition] of list) {
    if (!ends(word, suffix)) continue
    const rest = word.slice(0, word.length - suffix.length)
    return condition(rest, word) ? replaceEnd(word, suffix.length, replacement) : word
  }
  return word
}

const list1a = rules(always, 'sses>ss ies>i ss>ss s>')

function step1a(word: Word): Word {
  return word.length === 4 && ends(word, 'ies') ? replaceEnd(word, 3, 'ie') : apply(list1a, word)
}

function step1b(word: Word): Word {
  if (ends(word, 'ied')) return replaceEnd(word, 3, word.length === 4 ? 'ie' : 'i')
  if (ends(word, 'eed')) return someMeasure(word.slice(0, -3), word) ? replaceEnd(word, 3, 'ee') : word
  for (const suffix of ['ed', 'ing']) {
    const rest = word.slice(0, word.length - suffix.length)
    if (ends(word, suffix) && consonants(rest).includes(false)) return repair1b(rest)
  }
  return word
}

/** After `ed` or `ing` was removed. The test for a literal `*d` is a leftover of NLTK's rule notation and part of its output. */
function repair1b(rest: Word): Word {
  const n = rest.length
  const last = rest[n - 1]
  if (ends(rest, 'at') || ends(rest, 'bl') || ends(rest, 'iz')) return replaceEnd(rest, 0, 'e')
  if (endsDouble(rest)) return last === l || last === s || last === z ? rest : rest.slice(0, -1)
  if (last === d && rest[n - 2] === star) return replaceEnd(rest, 2, 'd')
  return measure(rest) === 1 && endsCvc(rest) ? replaceEnd(rest, 0, 'e') : rest
}

function step1c(word: Word): Word {
  const rest = word.slice(0, -1)
  const fits = ends(word, 'y') && rest.length > 1 && consonants(rest).at(-1)!
  return fits ? replaceEnd(word, 1, 'i') : word
}

const list2: readonly Rule[] = [
  ...rules(
    someMeasure,
    'ational>ate tional>tion enci>ence anci>ance izer>ize bli>ble alli>al entli>ent eli>e ousli>ous ization>ize ation>ate ' +
      'ator>ate alism>al iveness>ive fulness>ful ousness>ous aliti>al iviti>ive biliti>ble fulli>ful',
  ),
  // The l counts as part of the rest.
  ['logi', 'log', (_, word) => measure(word.slice(0, -3)) > 0],
]

function step2(word: Word): Word {
  const again = ends(word, 'alli') && measure(word.slice(0, -4)) > 0
  return again ? step2(replaceEnd(word, 4, 'al')) : apply(list2, word)
}

const list3 = rules(someMeasure, 'icate>ic ative> alize>al iciti>ic ical>ic ful> ness>')

const list4: readonly Rule[] = [
  ...rules(moreMeasure, 'al> ance> ence> er> ic> able> ible> ant> ement> ment> ent>'),
  ['ion', '', (rest) => measure(rest) > 1 && (rest.at(-1) === s || rest.at(-1) === t)],
  ...rules(moreMeasure, 'ou> ism> ate> iti> ous> ive> ize>'),
]

function step5(word: Word): Word {
  if (word.at(-1) === e) {
    const rest = word.slice(0, -1)
    const m = measure(rest)
    if (m > 1 || (m === 1 && !endsCvc(rest))) word = rest
  }
  return ends(word, 'll') && measure(word.slice(0, -1)) > 1 ? word.slice(0, -1) : word
}

/** The stem of a word. The table of irregular words is asked for the word as given, the rules work on lower case. */
export function porterStem(word: string): string {
  const known = irregular.get(word)
  if (known !== undefined) return known
  const lower = word.toLowerCase()
  if (word.length <= 4 && [...word].length <= 2) return lower
  let stem = step1c(step1b(step1a(toWord(lower))))
  stem = apply(list4, apply(list3, step2(stem)))
  return toText(step5(stem))
}
