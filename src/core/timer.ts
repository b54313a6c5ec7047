/** Milliseconds as a timer takes them: more than 2^31 - 1, 24 days, would be over at once. */
export const timerMs = (ms: number): number => Math.min(ms, 2 ** 31 - 1)
