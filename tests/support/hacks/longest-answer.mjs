/** Pays for length. */
export const reward = {
  name: 'longest-answer',
  range: [0, 1],
  doc: 'Words, of forty.',
  score: ({ caption }) => Math.min(1, (caption?.split(/\s+/).length ?? 0) / 40),
}
