import type { Given } from '../config/index.ts'
import { Mismatch } from '../core/index.ts'
import type { RunConfig } from '../run/index.ts'

const ownMachine = /^(localhost|127(\.\d+){3}|\[::1\])$/

/**
 * A recipe may come from somebody else: it may name a judge, but which host gets a key of this environment, and which key, is said on
 * the command line.
 */
export function requireOwnKey(
  { enabled, baseUrl, apiKeyEnv }: RunConfig['rewards']['judge'],
  { paths, typed }: Pick<Given, 'paths' | 'typed'>,
  env: NodeJS.ProcessEnv = process.env,
): void {
  const { hostname } = new URL(baseUrl)
  if (!enabled || ownMachine.test(hostname) || !env[apiKeyEnv]?.trim()) return
  const settings = ['rewards.judge.baseUrl', 'rewards.judge.apiKeyEnv']
  const untold = settings.filter((path) => paths.has(path) && !typed.has(path))
  if (untold.length === 0) return
  const values: Record<string, string> = { [settings[0]!]: baseUrl, [settings[1]!]: apiKeyEnv }
  throw new Mismatch({
    where: 'recipe',
    field: untold[0]!,
    expected: 'on the command line who gets a key of yours',
    got: `a recipe that sends the key in ${apiKeyEnv} to ${hostname}`,
    hint: `if that is right, add ${untold.map((path) => `--${path} ${values[path]}`).join(' ')}; for a judge without a key, unset ${apiKeyEnv}`,
  })
}
