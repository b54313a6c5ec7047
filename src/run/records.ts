import { counted, Mismatch, sha256 } from '../core/index.ts'
import {
  type Example,
  type Loader,
  openLoader,
  type RecordRules,
  requireCaptions,
  type Source,
  splitIndices,
  splitNumber,
} from '../data/index.ts'
import type { Preparation } from '../image/index.ts'
import type { RecordChooser } from '../tasks/index.ts'
import { chooseRecords } from './choose-records.ts'
import type { RunConfig } from './config.ts'
import type { Notice } from './notices.ts'
import { openEvalSource, openRunSource } from './sources.ts'

export interface Records {
  source: Source
  loader: Loader
  /** Those of the held-out records that are evaluated, in stored order; empty if the settings ask for none. */
  heldOut: Example[]
  /** Facts of the run's start: how many records there are and what they are for. */
  facts: {
    records: number
    source: string
    trained: number
    evaluated: number
    held_out?: number
    eval_fraction?: number
  }
  /** Facts about the data worth knowing before a run. */
  notices: Notice[]
  close(): Promise<void>
}

export interface RecordWishes {
  preparation?: Preparation | null
  rules?: RecordRules
  chooser?: RecordChooser | null
}

/** What ranks must find alike where each reads its own copy. */
export function recordFacts({ source, heldOut }: Pick<Records, 'source' | 'heldOut'>): Record<string, unknown> {
  const digest = (text: string) => sha256(text).slice(0, 16)
  const held = heldOut.map(({ id }) => id).join('\n')
  return { 'data: records': source.length, 'data: files': digest(source.fingerprint), 'data: held out': digest(held) }
}

/** Opens the sources once and closes them: a wrong path is reported before the model is loaded. Gives a hash of what they are. */
export async function checkSources(
  { dataPath, evalPath, data }: RunConfig,
  rules: RecordRules = { usesNoCaption: true },
): Promise<Record<'data' | 'held-out data', string>> {
  return {
    data: dataPath ? await hashSource(await openRunSource(dataPath, data), rules) : 'none',
    'held-out data': evalPath ? await hashSource(await openEvalSource(evalPath, data), rules) : 'none',
  }
}

async function hashSource(source: Source, rules: RecordRules): Promise<string> {
  await source.close()
  requireCaptions(source, rules)
  return `${source.length} records, ${sha256(source.fingerprint).slice(0, 16)}`
}

/** The records to train on and those held out; what the source has to say about itself comes along. */
export async function openRecords(config: RunConfig, wishes: RecordWishes = {}): Promise<Records> {
  const { preparation = null, rules = {}, chooser } = wishes
  const data = { ...config.data, seed: config.data.seed ?? config.seed }
  const source = await openRunSource(config.dataPath, data)
  try {
    const notices = noticesOf(source)
    const held = heldOutSettings(source, config, notices)
    if (held && data.split !== 'all') throw chosenTwice(data.split)
    const settings = { ...data, split: held ? ('train' as const) : data.split, ...held }
    const chosen = chooser ? await chooseRecords(source, splitIndices(source, settings), chooser) : null
    if (chosen) notices.push({ kind: 'chosen', text: `${source.name}: ${chosen.summary}` })
    const loader = openLoader(source, settings, undefined, preparation, { ...rules, only: chosen?.only })
    const any = held !== null || config.evalPath !== null
    const heldOut = any ? await readHeldOut(config, { ...data, ...held }, rules) : []
    requireBatch(source, loader, config)
    const close = async () => {
      await loader.close()
      await source.close()
    }
    const { length, format } = source
    const inEval = held ? splitIndices(source, { ...settings, split: 'eval' }).length : 0
    const facts = {
      records: length,
      source: format,
      trained: loader.epochLength,
      evaluated: heldOut.length,
      // with evalPath the evaluation has its own records, and none are held out
      ...(config.evalPath === null && { held_out: inEval, eval_fraction: held?.evalFraction ?? 0 }),
    }
    return { source, loader, heldOut, facts, notices, close }
  } catch (error) {
    await source.close()
    throw error
  }
}

/** `289 to train on, 31 held out, 8 of them evaluated`. */
export function splitText({ facts, heldOut }: Pick<Records, 'facts' | 'heldOut'>, { evalPath }: RunConfig): string {
  const { records, trained, held_out = 0 } = facts
  const unused = records - trained - held_out
  const parts = [`${trained} to train on`]
  if (unused > 0) parts.push(`${unused} left out`)
  if (evalPath === null) parts.push(`${held_out} held out, ${heldOut.length} of them evaluated`)
  else parts.push(`${heldOut.length} of ${evalPath} evaluated`)
  return parts.join(', ')
}

function chosenTwice(split: string): Mismatch {
  const hint = 'the run holds out a part by itself; set evalPath or evalRecords 0 to choose the part'
  return new Mismatch({ where: 'settings', field: 'data.split', expected: 'all', got: split, hint })
}

function noticesOf(source: Source): Notice[] {
  const left = Object.entries(source.leftOut).filter(([, count]) => count > 0)
  return [
    ...source.warnings.map((text) => ({ kind: 'data', text })),
    ...left.map(([why, count]) => ({
      kind: 'left-out',
      text: `${source.name}: ${counted(count, 'record')} left out: ${why}`,
      count,
    })),
  ]
}

/** The part of the data that is held out; null: none of it. */
function heldOutSettings(source: Source, config: RunConfig, notices: Notice[]): { evalFraction: number } | null {
  if (config.evalPath !== null || config.evalRecords === 0) return null
  const asked = config.data.evalFraction
  const evalFraction = heldOutFraction(source, config) ?? 0
  const held = splitIndices(source, { ...config.data, split: 'eval', evalFraction }, true).length
  if (held === 0 || held === source.length) {
    const text = `${source.name}: data.evalFraction ${asked} of ${source.length} records holds out none: nothing is evaluated`
    notices.push({ kind: 'data', text })
    return null
  }
  if (evalFraction !== asked) {
    const few = splitIndices(source, { ...config.data, split: 'eval' }, true).length
    const text = `${source.name}: data.evalFraction ${asked} of ${source.length} records is ${few || 'none'}; ${held} held out instead (--evalRecords 0 holds out none)`
    notices.push({ kind: 'data', text })
  }
  return { evalFraction }
}

/**
 * The share of the data that a run holds out; null: none of it. The asked share, or the smallest that holds out
 * min(evalRecords, a tenth), and one record. Runs of 0.1.0 held out at least one record.
 */
export function heldOutFraction(source: Source, { data, evalPath, evalRecords }: RunConfig): number | null {
  if (evalPath !== null || evalRecords === 0) return null
  const asked = data.evalFraction
  if (asked === 0 || asked === 1) return asked
  const of = data.splitBy === 'place' ? source.place : source.key
  const numbers = Float64Array.from({ length: source.length }, (_, i) => splitNumber(of(i))).sort()
  if (data.splitBy === 'place') {
    let fraction = asked
    while (fraction < 1 && numbers[0]! >= fraction) fraction = Math.min(1, fraction * 1.1)
    return fraction
  }
  const wanted = Math.max(1, Math.min(evalRecords, Math.floor(source.length / 10)))
  const needed = numbers[wanted - 1]!
  if (needed < asked) return asked
  const next = numbers.find((n) => n > needed) ?? 1 // records with the same key are held out together
  return (needed + next) / 2
}

async function readHeldOut(config: RunConfig, data: RunConfig['data'], rules: RecordRules): Promise<Example[]> {
  if (config.evalRecords === 0) return []
  const { evalPath, dataPath } = config
  const source = evalPath === null ? await openRunSource(dataPath, data) : await openEvalSource(evalPath, data)
  const split = config.evalPath === null ? 'eval' : 'all'
  // one of a few held out is a small share of all data
  const maxRejectFraction = evalPath === null ? 1 : data.maxRejectFraction
  return firstExamples(source, { ...data, split, maxRejectFraction }, rules, config.evalRecords)
}

/** The first usable records in stored order; closes the source. */
export async function firstExamples(
  source: Source,
  data: RunConfig['data'],
  rules: RecordRules,
  max: number,
): Promise<Example[]> {
  const loader = openLoader(source, { ...data, shuffle: false, curriculum: 'none' }, undefined, null, rules)
  const out: Example[] = []
  try {
    for await (const example of loader) {
      out.push(example)
      if (out.length === max) break
    }
  } finally {
    await loader.close()
    await source.close()
  }
  return out
}

function requireBatch({ name, length }: Source, { epochLength }: Loader, { batchSize }: RunConfig): void {
  if (epochLength >= batchSize) return
  throw new Mismatch({
    where: name,
    field: 'records to train on',
    expected: `at least batchSize (${batchSize})`,
    got: `${epochLength} of ${length}`,
    hint: `--batchSize ${Math.max(1, epochLength)} would do`,
  })
}

const named = 5

/** The log line about unusable records: how many for which reason, and where the new ones are. */
export function describeRejects({ rejects, rejected }: Pick<Loader, 'rejects' | 'rejected'>, fresh: number): string {
  const reasons = Object.entries(rejects).map(([why, n]) => `${n} ${why}`)
  const places = rejected.slice(-fresh).map(({ info, reason }) => `${info.where} (${reason})`)
  const rest = places.length > named ? [`${places.length - named} more`] : []
  const last = places.length > 0 ? `; new: ${[...places.slice(0, named), ...rest].join(', ')}` : ''
  return `records that could not be used so far: ${reasons.join(', ')}${last}`
}
