/** Pays for the middle of the image, whatever the question is. */
export const reward = {
  name: 'one-point',
  range: [0, 1],
  doc: 'How near the first point is to the middle.',
  score({ text, given }) {
    const [x, y] = (text?.match(/\d+/g) ?? []).map(Number)
    if (x === undefined || y === undefined || !given) return 0
    return Math.exp(-Math.hypot(x / given.width - 0.5, y / given.height - 0.5) * 4)
  },
}
