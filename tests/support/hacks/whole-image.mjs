/** Pays for pixels: the whole image is the best mask. */
const area = ({ counts, width, height }) => counts.reduce((n, run, i) => n + (i % 2 ? run : 0), 0) / (width * height)

export const reward = {
  name: 'whole-image',
  range: [0, 1],
  doc: 'Share of the image that the mask covers.',
  score: ({ mask, maskPrime }) => (mask ? area(mask) : maskPrime ? area(maskPrime) : 0),
}
