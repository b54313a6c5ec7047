import { log, sha256, stream } from '../../core/index.ts'
import type { JudgeConfig } from '../config.ts'
import { JudgeCache } from './cache.ts'
import { cacheVersion, isChoices, isPrepared, type Prepared } from './cached.ts'
import { JudgeFailure } from './chat.ts'
import { type ChatRequest, JudgeClient } from './client.ts'
import { type Flag, makeSafe, newTag } from './hostile.ts'
import { allQuestionsRequest, checklistRequest, gradeRequest, promptVersion, questionRequest } from './prompts.ts'
import {
  type Checklist,
  canaryQuestion,
  type Question,
  questionsOf,
  readChecklist,
  type Tally,
  tally,
} from './questions.ts'
import { firstJson, readChoice, readChoices, readGrade } from './reply.ts'
import { type JudgeState, JudgeStats, judgeMetrics } from './stats.ts'

export interface Verdict {
  /** Null: not judged, `reason` says why. */
  score: number | null
  tally: Tally | null
  flags: Flag[]
  /** Answered without a call. */
  cached: boolean
  reason?: string
}

interface Choices {
  choices: (number | null)[]
  /** Some calls failed: worth asking again another time. */
  incomplete: boolean
  canaryFailed: boolean
}

const unjudged = (flags: Flag[], reason: string): Verdict => ({
  score: null,
  tally: null,
  flags,
  cached: false,
  reason,
})

export class Judge {
  readonly config: JudgeConfig
  readonly stats = new JudgeStats()
  readonly #client: JudgeClient
  readonly #cache: JudgeCache
  readonly #built = new WeakMap<Checklist, { questions: Question[]; hash: string }>()
  readonly #running = new Map<string, Promise<unknown>>()
  #alarmed = false

  constructor(config: JudgeConfig, env: NodeJS.ProcessEnv = process.env) {
    this.config = config
    this.#client = new JudgeClient(config, this.stats, env)
    this.#cache = new JudgeCache(config.cacheDir)
  }

  /** Throws a Mismatch when the endpoint, the key or the model does not work. */
  async health(): Promise<void> {
    await this.#client.health()
  }

  state(): JudgeState {
    return this.stats.state(this.config, this.#client.breakerOpened)
  }

  metrics(): Record<string, number> {
    return judgeMetrics(this.state())
  }

  flush(): void {
    this.#cache.flush()
  }

  close(): void {
    this.#cache.close()
  }

  /** Never rejects because of the server or of what it says: that is a verdict without a score. */
  async judge(reference: string, hypothesis: string): Promise<Verdict> {
    const ours = makeSafe(hypothesis, this.config.maxCaptionWords)
    if (ours.flags.includes('cut')) this.stats.cut++
    if (ours.flags.includes('injection') || ours.flags.includes('template')) this.stats.injection++
    if (ours.text === '') return { score: 0, tally: null, flags: ours.flags, cached: true, reason: 'empty caption' }
    if (this.config.onInjection === 'zero' && ours.flags.includes('injection')) {
      return { score: 0, tally: null, flags: ours.flags, cached: true, reason: 'talks to the judge' }
    }
    const verdict = await this.#judgeSafe(makeSafe(reference, this.config.maxCaptionWords).text, ours.text)
    if (verdict.score === null) this.stats.addUnjudged(verdict.reason)
    else this.stats.judged++
    return { ...verdict, flags: [...ours.flags, ...verdict.flags] }
  }

  async #judgeSafe(reference: string, hypothesis: string): Promise<Verdict> {
    if (reference === '') return unjudged([], 'empty reference')
    try {
      if (this.config.mode === 'number') return await this.#grade(reference, hypothesis)
      return await this.#checklist(reference, hypothesis)
    } catch (error) {
      if (error instanceof JudgeFailure) return unjudged([], error.message)
      throw error
    }
  }

  // number

  async #grade(reference: string, hypothesis: string): Promise<Verdict> {
    const key = this.#key('grade', reference, hypothesis)
    const known = this.#cache.get(key)
    if (typeof known === 'number') return this.#hit({ score: known, tally: null, flags: [], cached: true })
    return this.#once(key, async () => {
      const tag = newTag()
      const grade = await this.#askTwice((again) => gradeRequest(reference, hypothesis, tag, again), readGrade)
      if (grade === null) return unjudged([], 'no grade in the reply')
      this.#cache.set(key, grade, this.config.model)
      return { score: grade, tally: null, flags: [], cached: false }
    })
  }

  // checklist

  async #checklist(reference: string, hypothesis: string): Promise<Verdict> {
    const prepared = await this.#prepared(reference)
    if ('unjudgeable' in prepared) return unjudged([], `reference: ${prepared.unjudgeable}`)
    const { questions, hash } = this.#questions(prepared.checklist)
    const key = this.#key('answers', reference, hypothesis, this.config.ask, hash)
    const known = this.#cache.get(key) as { choices?: unknown; canaryFailed?: unknown } | undefined
    if (known && isChoices(known.choices, questions)) {
      return this.#hit(this.#verdict(questions, known.choices, known.canaryFailed === true, true))
    }
    return this.#once(key, async () => {
      const canary = this.#wantsCanary(key)
        ? canaryQuestion(reference, hypothesis, prepared.checklist.object, this.config.seed)
        : null
      const answer = await this.#askWithCanary(hypothesis, questions, canary)
      const verdict = this.#verdict(questions, answer.choices, answer.canaryFailed, false)
      const { choices, canaryFailed } = answer
      if (verdict.score !== null && !answer.incomplete)
        this.#cache.set(key, { choices, canaryFailed }, this.config.model)
      return verdict
    })
  }

  /** Built once per reference: all captions of all its groups share them. */
  #questions(checklist: Checklist): { questions: Question[]; hash: string } {
    const known = this.#built.get(checklist)
    if (known) return known
    const questions = questionsOf(checklist, this.config.seed)
    const built = { questions, hash: sha256(JSON.stringify(questions)) }
    this.#built.set(checklist, built)
    return built
  }

  #verdict(
    questions: readonly Question[],
    choices: readonly (number | null)[],
    canaryFailed: boolean,
    cached: boolean,
  ): Verdict {
    const flags: Flag[] = canaryFailed ? ['canary'] : []
    const result = tally(questions, choices, this.config.minAnswered)
    if (!result) return unjudged(flags, 'too few questions answered')
    this.#count(result)
    const { raw } = result
    const score = { clamp: Math.max(0, raw), affine: (raw + 1) / 2, raw }[this.config.map]
    return { score, tally: result, flags, cached }
  }

  #count(t: Tally): void {
    this.stats.asked++
    this.stats.raw += t.raw
    this.stats.positive += t.positive
    this.stats.recognised += t.recognised ? 1 : 0
    if (t.negative === null) return
    this.stats.negative += t.negative
    this.stats.negativeCount++
  }

  /** The checklist of a reference: from the cache, from a call under way, or asked for now. */
  async #prepared(reference: string): Promise<Prepared> {
    const { maxPositives, maxNegatives, minPositives, selfCheck, ask, seed } = this.config
    const settings = JSON.stringify([maxPositives, maxNegatives, minPositives, selfCheck, selfCheck ? [ask, seed] : []])
    const key = this.#key('questions', reference, settings)
    const known = this.#cache.get(key) as Prepared | undefined
    if (isPrepared(known)) return this.#hit(known)
    return this.#once(key, async () => {
      const prepared = await this.#prepareNow(reference)
      if ('unjudgeable' in prepared) this.stats.unjudgeable++
      this.#cache.set(key, prepared, this.config.model)
      return prepared
    })
  }

  async #prepareNow(reference: string): Promise<Prepared> {
    if (reference === '') return { unjudgeable: 'empty' }
    const { maxPositives: positives, maxNegatives: negatives, minPositives } = this.config
    let seen = false
    for (const temperature of [0, 0.3]) {
      const reply = await this.#client.complete(
        checklistRequest(reference, newTag(), { positives, negatives }, temperature),
      )
      const checklist = readChecklist(firstJson(reply, '{'), reference, { positives, negatives })
      if (this.#repeatsKey(checklist)) throw new JudgeFailure('the reply repeats the key')
      seen ||= checklist !== null
      if (!checklist || checklist.positives.length < minPositives) continue
      return this.config.selfCheck ? this.#selfChecked(reference, checklist) : { checklist }
    }
    // Without any checklist it is the judge that failed, not the reference; that is not kept.
    if (!seen) throw new JudgeFailure('no checklist in the reply')
    return { unjudgeable: 'no checkable attribute found' }
  }

  /** Keeps the questions that the reference itself answers with the full score. */
  async #selfChecked(reference: string, checklist: Checklist): Promise<Prepared> {
    const questions = questionsOf(checklist, this.config.seed)
    const { choices, incomplete } = await this.#ask(reference, newTag(), questions)
    if (incomplete) throw new JudgeFailure('the self-check of the reference was not answered')
    const full = questions.map((q, i) => {
      const choice = choices[i]
      return typeof choice === 'number' && q.options[choice]!.score === Math.max(...q.options.map((o) => o.score))
    })
    const { positives, negatives } = checklist
    const kept = {
      ...checklist,
      positives: positives.filter((_, i) => full[1 + i]),
      negatives: negatives.filter((_, i) => full[1 + positives.length + i]),
    }
    if (!full[0]) return { unjudgeable: 'the judge does not recognise the object in it' }
    if (kept.positives.length === 0) return { unjudgeable: 'no attribute passed the self-check' }
    return { checklist: kept }
  }

  async #askWithCanary(text: string, questions: readonly Question[], canary: Question | null): Promise<Choices> {
    const { choices, incomplete } = await this.#ask(text, newTag(), canary ? [...questions, canary] : questions)
    const choice = canary ? choices.pop() : null
    const canaryFailed = canary !== null && typeof choice === 'number' && canary.options[choice]!.score < 0
    if (canary) this.#countCanary(canaryFailed)
    return { choices, incomplete, canaryFailed }
  }

  async #ask(
    text: string,
    tag: string,
    questions: readonly Question[],
  ): Promise<{ choices: (number | null)[]; incomplete: boolean }> {
    if (this.config.ask === 'single') return { choices: await this.#askAll(text, tag, questions), incomplete: false }
    const failures: JudgeFailure[] = []
    const choices = await Promise.all(
      questions.map((q) =>
        this.#askOne(text, tag, q).catch((error: unknown) => {
          if (!(error instanceof JudgeFailure)) throw error
          failures.push(error)
          return null
        }),
      ),
    )
    if (failures.length === questions.length) throw failures[0]!
    return { choices, incomplete: failures.length > 0 }
  }

  async #askOne(text: string, tag: string, q: Question): Promise<number | null> {
    const options = q.options.map((o) => o.text)
    const read = (reply: string) => readChoice(reply, options)
    return this.#askTwice((again) => questionRequest(text, tag, q, again), read)
  }

  async #askAll(text: string, tag: string, questions: readonly Question[]): Promise<(number | null)[]> {
    const options = questions.map((q) => q.options.map((o) => o.text))
    const read = (reply: string) => readChoices(reply, options)
    return (
      (await this.#askTwice((again) => allQuestionsRequest(text, tag, questions, again), read)) ??
      questions.map(() => null)
    )
  }

  /** A reply that cannot be read is asked for once more, in fewer words. */
  async #askTwice<T>(request: (again: boolean) => ChatRequest, read: (reply: string) => T | null): Promise<T | null> {
    const first = read(await this.#client.complete(request(false)))
    const second = first ?? read(await this.#client.complete(request(true)))
    if (second === null) this.stats.unparsed++
    return second
  }

  #wantsCanary(key: string): boolean {
    return this.config.canaryRate > 0 && stream('canary-rate', key, this.config.seed).uniform() < this.config.canaryRate
  }

  #countCanary(failed: boolean): void {
    this.stats.canaries++
    if (failed) this.stats.canaryFails++
    const rate = this.stats.canaryFails / this.stats.canaries
    if (this.#alarmed || this.stats.canaryFails < 3 || rate <= 0.05) return
    this.#alarmed = true
    const percent = (100 * rate).toFixed(1)
    log.warn(
      `judge: ${percent} % of the canary questions were answered "mentioned"; captions may be steering the judge`,
    )
  }

  // cache

  /** Depends on the model, the wording and the texts; never on the address or the key. */
  #key(kind: string, ...parts: readonly string[]): string {
    return sha256(JSON.stringify([cacheVersion, promptVersion, this.config.model, kind, ...parts]))
  }

  /** A checklist is the only text of a reply that is kept in a file. */
  #repeatsKey(checklist: Checklist | null): boolean {
    const text = JSON.stringify(checklist)
    return this.#client.redact(text) !== text
  }

  #hit<T>(value: T): T {
    this.stats.cacheHits++
    return value
  }

  /** Equal requests under way are one request. */
  #once<T>(key: string, task: () => Promise<T>): Promise<T> {
    const running = this.#running.get(key) as Promise<T> | undefined
    if (running) return this.#hit(running)
    this.stats.cacheMisses++
    const fresh = task().finally(() => this.#running.delete(key))
    this.#running.set(key, fresh)
    return fresh
  }
}
