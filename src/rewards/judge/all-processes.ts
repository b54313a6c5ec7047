/** Metrics of a judge that count something; the others are shares and times. */
const counts = new Set(
  [
    'calls',
    'retries',
    'failures',
    'judged',
    'unjudged',
    'unparsed',
    'unjudgeable',
    'cut',
    'injection',
    'tokens_in',
    'tokens_out',
    'cost',
  ].map((name) => `judge/${name}`),
)

/**
 * Metrics of the judges of all processes as those of one: counts are added, shares and times are averaged by what each process was asked.
 */
export function judgeOfAll(all: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  if (all.length === 1) return { ...all[0] }
  const names = [...new Set(all.flatMap((metrics) => Object.keys(metrics)))]
  const asked = all.map((metrics) => (metrics['judge/judged'] ?? 0) + (metrics['judge/unjudged'] ?? 0))
  const total = asked.reduce((a, b) => a + b, 0)
  const added = (name: string) => all.reduce((sum, metrics) => sum + (metrics[name] ?? 0), 0)
  const averaged = (name: string) =>
    total === 0 ? 0 : all.reduce((sum, metrics, i) => sum + (metrics[name] ?? 0) * (asked[i]! / total), 0)
  return Object.fromEntries(names.map((name) => [name, counts.has(name) ? added(name) : averaged(name)]))
}
