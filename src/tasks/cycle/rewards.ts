// What the two round trips are rewarded for: presets, flags, and the judge's share.
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

/** The judge takes three quarters of METEOR's weight of the same text; without METEOR both are added to the terms. */
function withJudge(loop: TaskRewards, of: 'caption' | 'captionPrime'): TaskRewards {
  const share = loop.terms.find((t) => t.type === 'meteor' && t.of === of)
  const rest = loop.terms.filter((t) => t !== share)
  const weight = share?.weight ?? 1
  return { ...loop, terms: [...rest, ...judged(of, 0.25 * weight, 0.75 * weight)] }
}

const produced: Record<Loop, Pick<OpenTask, 'produced' | 'shapes'>> = {
  loop1: { produced: ['caption', 'maskPrime', 'text'], shapes: 'caption' },
  loop2: { produced: ['mask', 'captionPrime', 'text'], shapes: 'captionPrime' },
}

type Rewards = CycleConfig['rewards']

/** `--use_llm_judge` without rewards of one's own for loop 1 is the preset `caption`; `given`: the settings before their defaults. */
export function resolvePreset(given: { preset?: PresetName; loop1?: unknown }, rewards: Rewards): PresetName {
  const isOpen = given.preset === undefined && given.loop1 === undefined
  return isOpen && rewards.judgeLoop1 ? 'caption' : rewards.preset
}

/** The terms that preset or settings name, and the judge added to them if a flag asks for it and they have none. */
function loopsOf(config: Rewards, notices: string[]): Record<Loop, TaskRewards> {
  const preset = presets[config.preset]
  const loops = { loop1: config.loop1 ?? preset.loop1, loop2: config.loop2 ?? preset.loop2 }
  const asks = hasJudge(loops.loop1) || hasJudge(loops.loop2)
  const add = (name: Loop, of: 'caption' | 'captionPrime', flag: string) => {
    loops[name] = withJudge(loops[name], of)
    const terms = loops[name].terms.map((t) => `${t.weight} ${t.type}`).join(' + ')
    if (name === 'loop1' || config.loop2) notices.push(`${name}: ${flag} adds the judge to its terms: ${terms}`)
  }
  if (config.judgeLoop1 && !asks) add('loop1', 'caption', '--use_llm_judge')
  if (config.judgeLoop2 && !hasJudge(loops.loop2)) add('loop2', 'captionPrime', '--use_llm_judge_loop2')
  return loops
}

/** Preset, explicit loops, flags and modules put together; decided once, before the first step. */
export function resolveRewards(config: Rewards): TaskRewardsPlan {
  const notices: string[] = []
  const modules = config.modules.map((m): TermConfig => ({ type: 'module', ...m }))
  const enabled = config.judge.enabled || config.judgeLoop1 || config.judgeLoop2
  const loops = loopsOf(config, notices)
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
