import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { firstJson, parseChoice, readChoice, readChoices, readGrade } from '../../../src/rewards/judge/reply.ts'
import { damageBytes } from '../bytes.ts'
import type { Format } from '../format.ts'
import { damageJson } from '../json.ts'

const choices = ['a red box', 'no', 'the man on the left', '(none) of [these]*']
const replies = [
  'A',
  'B. no',
  'The answer is **C**.',
  '["A", "B", "no"]',
  '7/10',
  'Sorry, I cannot help.',
  'score: 8.5',
  '{"score": 3}',
]

export const judgeReply: Format = {
  name: 'judge-reply',
  async setup() {
    return (random) => {
      const choice = random.below(4)
      if (choice === 0) {
        const { text, note } = damageJson(['A', 'B', { score: 3, reasons: ['x'] }], random)
        return { files: { 'reply.txt': text }, note, expect: 'in range' }
      }
      if (choice === 1) {
        const piece = random.pick(['[', '{', '"', '\\', 'a.', '(', '1', '-', '. ', '\u200b', '\ud800', 'no '])
        const text = piece.repeat(1 + random.below(200_000))
        return { files: { 'reply.txt': text }, note: `${text.length} times ${piece}`, expect: 'in range' }
      }
      const { bytes, note } = damageBytes(Buffer.from(random.pick(replies)), random)
      return { files: { 'reply.txt': bytes }, note, expect: 'in range' }
    }
  },
  async read(folder) {
    const reply = readFileSync(join(folder, 'reply.txt'), 'utf8')
    const index = (n: number | null) => n === null || (Number.isInteger(n) && n >= 0 && n < choices.length)
    const grade = readGrade(reply)
    const list = readChoices(reply, [choices, choices])
    firstJson(reply, '{')
    const fine =
      index(parseChoice(reply, choices)) &&
      index(readChoice(reply, choices)) &&
      (grade === null || (grade >= 0 && grade <= 1)) &&
      (list === null || (list.length === 2 && list.every(index)))
    return fine ? 'in range' : 'out of range'
  },
}
