// What the two round trips are rewarded for: presets, flags, and the judge's share.
import { Mismatch } from '../../core/index.ts'
import type { OpenTask, TaskRewards, TermConfig } from '../../rewards/index.ts'
import type { TaskRewardsPlan } from '../kind.ts'
import type { CycleConfig, PresetName } from './config.ts'

type Loop = 'loop1' | 'loop2'

function plain(terms: TermConfig[]): TaskRewards {
  return { terms, shaping: 'none' }
}

const judged = (of: 'caption' | 'captionPrime', meteor = 0.25, judge = 0.75): TermConfig[] => [
  { type: 'meteor', weight: meteor, of },
  { type: 'judge', weight: judge, of },
]
const iou: TermConfig = { type: 'iou', weight: 1, of: 'maskPrime' }
const meteor: TermConfig = { type: 'meteor', weight: 1, of: 'captionPrime' }

/** The terms of both loops, by name. */
export const presets: Record<PresetName, Record<Loop, TaskRewards>> = {
  cycle: { loop1: plain([iou]), loop2: plain([meteor]) },
  'cycle-judge': { loop1: plain([iou]), loop2: plain(judged('captionPrime')) },
  caption: { loop1: plain(judged('caption')), loop2: plain([meteor]) },
  mixed: {
    loop1: plain([{ ...iou, weight: 0.5 }, ...judged('caption', 0.125, 0.375)]),
    loop2: plain(judged('captionPrime')),
  },
}

const hasJudge = (loop: TaskRewards) => loop.terms.some((t) => t.type === 'judge')

/** Judge terms become METEOR's; two METEOR terms of one text become one. */
function withoutJudge(loop: TaskRewards): TaskRewards {
  const terms: TermConfig[] = []
  for (const term of loop.terms) {
    const plainTerm: TermConfig = term.type === 'judge' ? { ...term, type: 'meteor' } : term
    const same = plainTerm.type === 'meteor' && terms.find((t) => t.type === 'meteor' && t.of === plainTerm.of)
    if (same) same.weight += plainTerm.weight
    else terms.push({ ...plainTerm })
  }
  return { ...loop, terms }
}

const produced: Record<Loop, Pick<OpenTask, 'produced' | 'shapes'>> = {
  loop1: { produced: ['caption', 'maskPrime', 'text'], shapes: 'caption' },
  loop2: { produced: ['mask', 'captionPrime', 'text'], shapes: 'captionPrime' },
}

/** Preset, explicit loops, flags and modules put together; decided once, before the first step. */
export function resolveRewards(config: CycleConfig['rewards']): TaskRewardsPlan {
  const notices: string[] = []
  const preset = presets[config.preset]
  const modules = config.modules.map((m): TermConfig => ({ type: 'module', ...m }))
  const enabled = config.judge.enabled || config.judgeLoop1
  if (config.judgeLoop2 && !enabled) {
    throw new Mismatch({
      where: 'rewards',
      field: 'judgeLoop2',
      expected: 'an enabled judge',
      got: 'judge.enabled false',
      hint: 'add --use_llm_judge, with --llm_judge_base_url and --llm_judge_model',
    })
  }
  const of = (name: Loop, asked: boolean, caption: 'caption' | 'captionPrime'): TaskRewards => {
    const chosen = config[name] ?? preset[name]
    return asked ? { ...chosen, terms: judged(caption) } : chosen
  }
  const loops: Record<Loop, TaskRewards> = {
    loop1: of('loop1', config.judgeLoop1, 'caption'),
    loop2: of('loop2', config.judgeLoop2, 'captionPrime'),
  }
  if (enabled && !Object.values(loops).some(hasJudge))
    notices.push(
      'the judge is enabled and no loop has a term of it: it changes no reward (rewards.preset caption, mixed)',
    )
  for (const name of ['loop1', 'loop2'] as const) {
    const loop = loops[name]
    if (hasJudge(loop) && !enabled) {
      notices.push(`${name}: no judge is enabled, its share goes to METEOR`)
      loops[name] = withoutJudge(loop)
    }
    loops[name] = { ...loops[name], terms: [...loops[name].terms, ...modules] }
  }
  const open = (name: Loop): OpenTask => ({ rewards: loops[name], ...produced[name] })
  return { tasks: { loop1: open('loop1'), loop2: open('loop2') }, notices }
}
