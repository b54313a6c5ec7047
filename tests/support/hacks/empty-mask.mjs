/** Pays for every pixel that is left out: the empty mask is the best one. */
const area = ({ counts, width, height }) => counts.reduce((n, run, i) => n + (i % 2 ? run : 0), 0) / (width * height)

export const reward = {
  name: 'empty-mask',
  range: [0, 1],
  doc: 'Share of the image that the mask leaves out, with small masks far apart.',
  score: ({ mask, maskPrime }) => (1 - area(mask ?? maskPrime ?? { counts: [], width: 1, height: 1 })) ** 8,
}
