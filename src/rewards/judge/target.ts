// The judge that a run asks: whether there is one, which host gets the captions, and which variable holds the key. Everything that
// needs one of these answers takes it from here.
import { Mismatch, refuseAt, shellWord } from '../../core/index.ts'
import { JudgeConfig, JudgeUrl } from '../config.ts'

export interface JudgeTarget {
  baseUrl: string
  /** The setting `baseUrl` names it; else OPENAI_BASE_URL or the default does. */
  isSetting: boolean
  host: string
  /** The host is this machine. */
  isLocal: boolean
  model: string
  mode: JudgeConfig['mode']
  /** Name of the environment variable that holds the key. */
  keyVariable: string
  /** Whether that variable is set. */
  hasKey: boolean
}

const thisMachine = /^(localhost|127(\.\d+){3}|\[::1\])$/

export function judgeTarget(judge: JudgeConfig, env: NodeJS.ProcessEnv = process.env): JudgeTarget {
  const { model, mode, apiKeyEnv: keyVariable } = judge
  const baseUrl = judge.baseUrl ?? urlOf(env)
  const host = new URL(baseUrl).hostname
  const hasKey = Boolean(env[keyVariable]?.trim())
  const isSetting = judge.baseUrl !== null
  return { baseUrl, isSetting, host, isLocal: thisMachine.test(host), model, mode, keyVariable, hasKey }
}

function urlOf(env: NodeJS.ProcessEnv): string {
  const named = env.OPENAI_BASE_URL?.trim()
  if (!named) return 'http://localhost:9100/v1'
  const parsed = JudgeUrl.safeParse(named)
  if (parsed.success) return parsed.data
  const expected = 'an http address without user, password and query'
  throw new Mismatch({ where: 'environment', field: 'OPENAI_BASE_URL', expected, got: 'another text' })
}

/** By task, the resolved ones (`TaskKind.rewards`). */
type ResolvedTerms = Readonly<Record<string, { rewards: { terms: readonly { type: string }[] } }>>

/** Names of the tasks with a judge's term. */
export function judgedTasks(tasks: ResolvedTerms): Set<string> {
  const asks = (name: string) => tasks[name]!.rewards.terms.some(({ type }) => type === 'judge')
  return new Set(Object.keys(tasks).filter(asks))
}

/** The judge that the terms of these tasks ask; null: no term asks one. */
export function askedJudge(
  judge: JudgeConfig,
  tasks: ResolvedTerms,
  env: NodeJS.ProcessEnv = process.env,
): JudgeTarget | null {
  return judgedTasks(tasks).size > 0 ? judgeTarget(judge, env) : null
}

/** One line for a person. */
export function describeJudge(target: JudgeTarget | null): string {
  if (!target) return 'none'
  const { model, baseUrl, mode, keyVariable, hasKey } = target
  return `${model} at ${baseUrl}, mode ${mode}, ${hasKey ? `with the key in ${keyVariable}` : 'without a key'}`
}

const [urlSetting, keySetting] = ['rewards.judge.baseUrl', 'rewards.judge.apiKeyEnv'] as const
const usualVariable = JudgeConfig.parse({}).apiKeyEnv

/**
 * Rejects a judge whose host or key was chosen by a file. Flags, environment variables and code are the user's own word; a recipe
 * is not, because somebody else may have written it. `fromFiles`: paths of the settings that only a file sets.
 */
export function requireOwnWord(target: JudgeTarget, fromFiles: ReadonlySet<string>): void {
  const { host, isLocal, isSetting, hasKey, keyVariable } = target
  if (!hasKey) return
  const chosen = [
    { path: urlSetting, value: new URL(target.baseUrl).href, applies: isSetting && !isLocal },
    { path: keySetting, value: keyVariable, applies: keyVariable !== usualVariable },
  ].filter(({ path, applies }) => applies && fromFiles.has(path))
  if (chosen.length === 0) return
  const flags = chosen.map(({ path, value }) => `--${path} ${shellWord(value.replaceAll("'", '%27'))}`).join(' ')
  const got = `a file that sends the key in ${keyVariable} to ${host}`
  const hint = `If that is right, add ${flags}; for a judge without a key, unset ${keyVariable}`
  refuseAt('recipe')(chosen[0]!.path, 'a flag that names who gets your key', got, hint)
}
