/** Milliseconds as a timer takes them: more than 2^31 - 1, 24 days, would be over at once. */
export const timerMs = (ms: number): number => Math.min(ms, 2 ** 31 - 1)

/** Resolves after so many milliseconds. */
export const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, timerMs(ms)))

/** The work, or once the time is over what `late` gives or throws; whatever comes later is dropped. */
export function inTime<T, L>(work: Promise<T>, ms: number, late: () => L, keepsAlive = true): Promise<T | L> {
  let timer: NodeJS.Timeout | undefined
  const over = new Promise<void>((done) => {
    timer = setTimeout(done, timerMs(ms))
    if (!keepsAlive) timer.unref()
  })
  return Promise.race([work, over.then(late)]).finally(() => clearTimeout(timer))
}
