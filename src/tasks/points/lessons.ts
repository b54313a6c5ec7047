// Supervised answers of the point task, a warm start: a model that has never written points learns how they are written, and roughly
// where they lie. Heuristic negatives beside the object; in second-look the click that corrects the mask it sees; in joint box and
// points of the record. K answers, one for each record.
import { refuseAt } from '../../core/index.ts'
import type { Example } from '../../data/index.ts'
import { type PromptIds, teacherForceGroups } from '../../llm/index.ts'
import { maskArea } from '../../mask/index.ts'
import { backward, clearTape, noGrad, tidy } from '../../tensor/index.ts'
import type { BatchPosition, SupervisedBatches } from '../kind.ts'
import { heuristicNegatives, oracleClick } from './click-geometry.ts'
import { type Point, printedPoint } from './frame.ts'
import { askAbout, drawFirst, type PointSetup, positiveOf, withFirst } from './item.ts'
import { type WrittenPoints, writtenAnswer } from './prompts.ts'
import type { PointRecord } from './record.ts'
import { pointRecord } from './records.ts'

export function pointLessons(setup: PointSetup, checkpointing: boolean): SupervisedBatches {
  const { config } = setup
  if (config.thinking) refuseAt('points')('thinking', 'false in sft: the records have no thoughts to learn from', true)
  return textLessons(setup, checkpointing, (record) => lessonOf(setup, record))
}

/** A question and the tokens of the answer it teaches. */
type LessonMaker = (record: PointRecord, place: BatchPosition) => { prompt: PromptIds; answer: Int32Array }

/** Cross-entropy of one answer for each record. */
export function textLessons(setup: PointSetup, checkpointing: boolean, lesson: LessonMaker): SupervisedBatches {
  return {
    metrics: { loss: 'loss' },
    learn: async (batch, place) => ({ loss: learnAnswers(setup, batch, place, checkpointing, lesson) }),
  }
}

/** The mean over records of the mean over tokens; this process's part of it. */
function learnAnswers(
  setup: PointSetup,
  batch: readonly Example[],
  place: BatchPosition,
  checkpointing: boolean,
  lesson: LessonMaker,
): number {
  const { share, world } = place
  const own = batch.filter((_, i) => i % world.size === world.rank)
  if (own.length === 0) return 0
  const { model } = setup.policy
  try {
    return tidy(() => {
      const lessons = own.map((example) => lesson(pointRecord(example), place))
      const pass = teacherForceGroups(
        model,
        lessons.map((l) => l.prompt),
        lessons.map((l) => [l.answer]),
        { checkpointing },
      )
      const each = pass.logProbsByPrompt(1).map(({ logps }, i) => logps.sum().neg().div(lessons[i]!.answer.length))
      const loss = each.reduce((a, b) => a.add(b)).mul(share / batch.length)
      backward(loss)
      return loss.item()
    })
  } finally {
    clearTape()
  }
}

/** A record's question and the answer it teaches; only the language model gets a gradient. */
export function lessonOf(setup: PointSetup, record: PointRecord) {
  const { config, policy, sam } = setup
  return noGrad(() => {
    const positive = positiveOf(record)
    const seen =
      config.mode === 'second-look' || config.showMask
        ? drawFirst(setup, sam.encode(record.image), record, positive).mask
        : null
    const first = config.mode === 'second-look' ? seen : null
    const shown = withFirst(config, record.image, seen, positive)
    const { frame, prompt } = askAbout(setup, { record, positive, shown, first: seen })
    const print = (p: Point) => printedPoint(p, config.coords, frame, record.image)
    const click = first && oracleClick(record.mask, first, config.mode)
    const clicked = (label: 0 | 1) => (click?.label === label ? [click.point] : [])
    const said: WrittenPoints = {
      negatives: (first ? clicked(0) : heuristicNegatives(record.mask, config.maxPoints)).map(print),
      positives: (first ? clicked(1) : positive.points).map(print),
      box: positive.box && [...print([positive.box[0], positive.box[1]]), ...print([positive.box[2], positive.box[3]])],
      none: maskArea(record.mask) === 0,
    }
    const text = writtenAnswer(said, config)
    return { prompt, text, answer: policy.completion(text) }
  })
}
