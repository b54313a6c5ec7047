// Work of the host that is done while it would wait for a device: it prepares results that are computed when they are needed otherwise.
const jobs: (() => void)[] = []
/** Older ones are dropped. */
const maxJobs = 256

/** `job` may be done at any time, or never. Jobs wait until somebody spends time on them. */
export function inSpareTime(job: () => void): void {
  if (jobs.push(job) > maxJobs) jobs.shift()
}

/** Does jobs for about so many milliseconds, the newest first: results of older ones may be of no use any more. */
export function spendSpareTime(ms: number): void {
  const end = performance.now() + ms
  while (jobs.length > 0 && performance.now() < end) jobs.pop()!()
}
