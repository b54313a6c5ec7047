/** Pays for saying one word again and again. */
export const reward = {
  name: 'repeated-word',
  range: [0, 1],
  doc: 'Words that were there before, of eight.',
  score({ caption }) {
    const words = caption?.toLowerCase().match(/\p{L}+/gu) ?? []
    return Math.min(1, (words.length - new Set(words).size) / 8)
  },
}
