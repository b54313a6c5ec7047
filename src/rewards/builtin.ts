import { Mismatch, readTextFile, refuseAt } from '../core/index.ts'
import { cleanCaption, countSeg, countWords, hasMarkers, lengthFactor } from './caption.ts'
import { ciderCorpus, ciderD } from './cider.ts'
import { IouConfig, LengthShaping, MeteorConfig, type Produced } from './config.ts'
import { iouOf } from './iou.ts'
import type { Judge } from './judge/judge.ts'
import { meteor as meteorScore } from './meteor/index.ts'
import { bleu4, rougeL } from './overlap.ts'
import { type Answer, type BatchReward, defineReward, type Score, type SingleReward } from './reward.ts'

/** A field that this run produces; null is a produced nothing. */
function produced<K extends Produced | 'maskConfidence'>(answer: Answer, field: K): NonNullable<Answer[K]> | null {
  const value = answer[field]
  if (value !== undefined) return value
  return refuseAt(`sample ${answer.id}`)(field, 'what the reward term looks at', 'nothing produced')
}

/** The caption as every reward sees it. */
function captionIn(answer: Answer, of: 'caption' | 'captionPrime'): string {
  return cleanCaption(produced(answer, of) ?? '')
}

/** Intersection over union of the given mask and the produced one. */
export function iouReward(of: 'mask' | 'maskPrime', config: IouConfig = IouConfig.parse({})): SingleReward {
  return defineReward({
    name: 'iou',
    range: [0, 1],
    doc: "Intersection over union of the record's mask and the produced one; no mask is a true 0.",
    score(answer) {
      const mask = produced(answer, of)
      if (!answer.given)
        throw new Mismatch({ where: `sample ${answer.id}`, field: 'given', expected: "the record's mask", got: 'none' })
      return mask === null ? 0 : iouOf(answer.given, mask, config)
    },
  })
}

/** SAM2's own confidence in the produced mask. */
export function maskConfidenceReward(of: 'mask' | 'maskPrime'): SingleReward {
  return defineReward({
    name: 'maskConfidence',
    range: [0, 1],
    doc: "SAM2's predicted overlap of the produced mask times the probability of an object; no mask is a true 0.",
    score(answer) {
      if (produced(answer, of) === null) return 0
      const sure = produced(answer, 'maskConfidence')
      return sure === null ? 0 : sure.iou * sure.object
    },
  })
}

/** A reward of the produced caption alone, or of it against the record's. */
function captionReward(
  name: string,
  doc: string,
  of: 'caption' | 'captionPrime',
  score: (caption: string, reference: string) => number,
  range: [number, number] = [0, 1],
): SingleReward {
  return defineReward({ name, range, doc, score: (answer) => score(captionIn(answer, of), answer.reference) })
}

/** METEOR of the produced caption against the record’s caption. */
export function meteorReward(
  of: 'caption' | 'captionPrime',
  config: MeteorConfig = MeteorConfig.parse({}),
): SingleReward {
  const doc = "METEOR of the produced caption against the record's, as NLTK computes it; no caption is a true 0."
  return captionReward('meteor', doc, of, (caption, reference) => meteorScore(reference, caption, config))
}

/** BLEU-4 of the produced caption against the record's. */
export function bleuReward(of: 'caption' | 'captionPrime'): SingleReward {
  const doc = "BLEU-4 of the produced caption against the record's, as the COCO caption evaluation computes it."
  return captionReward('bleu', doc, of, (caption, reference) => bleu4(reference, caption))
}

/** ROUGE-L of the produced caption against the record's. */
export function rougeReward(of: 'caption' | 'captionPrime'): SingleReward {
  const doc = "ROUGE-L of the produced caption against the record's, as the COCO caption evaluation computes it."
  return captionReward('rouge', doc, of, (caption, reference) => rougeL(reference, caption))
}

/** CIDEr-D of the produced caption against the record's. `corpus`: a file of captions, one a line, that say which words are rare. */
export function ciderReward(of: 'caption' | 'captionPrime', corpus: string): SingleReward {
  const lines = readTextFile(corpus)
    .split(/\r?\n/)
    .filter((line) => line.trim() !== '')
  const expected = 'captions, one a line, at least 2'
  if (lines.length < 2) throw new Mismatch({ where: corpus, field: 'corpus', expected, got: lines.length })
  const rare = ciderCorpus(lines.map((line) => [line]))
  const doc = "CIDEr-D of the produced caption against the record's, with the word frequencies of a corpus."
  const score = (candidate: string, reference: string) => ciderD([{ candidate, references: [reference] }], rare)[0]!
  return captionReward('cider', doc, of, score, [0, 10 + 1e-9])
}

/** 1 inside the range of words, less outside. */
export function lengthReward(
  of: 'caption' | 'captionPrime',
  config: LengthShaping = LengthShaping.parse({}),
): SingleReward {
  const doc = 'Length factor of the produced caption: 1 between min and max words, less outside.'
  return captionReward('length', doc, of, (caption) => lengthFactor(countWords(caption), config))
}

/** 1 if the answer has the expected form (number of [SEG] tokens, no leftover markers), else 0. */
export function formatReward(of: 'caption' | 'captionPrime' | 'text'): SingleReward {
  return defineReward({
    name: 'format',
    range: [0, 1],
    doc: '1 when an answer has exactly one [SEG], or a caption has words and no markers; else 0.',
    score(answer) {
      const text = produced(answer, of) ?? ''
      if (of === 'text') return countSeg(text) === 1 ? 1 : 0
      return cleanCaption(text) !== '' && !hasMarkers(text) ? 1 : 0
    },
  })
}

/** The judge as a reward. A caption it could not judge makes the term unavailable for the whole group. */
export function judgeReward(judge: Judge, of: 'caption' | 'captionPrime', meteor?: MeteorConfig): BatchReward {
  return defineReward({
    name: 'judge',
    range: judge.config.map === 'raw' ? [-1, 1] : [0, 1],
    doc: 'A language model answers questions about the reference, reading only the produced caption.',
    nullMeans: 'group',
    fallback: meteorReward(of, meteor),
    scoreBatch(answers): Promise<Score[]> {
      return Promise.all(answers.map(async (a) => (await judge.judge(a.reference, captionIn(a, of))).score))
    },
  })
}
