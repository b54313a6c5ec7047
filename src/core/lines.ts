/** Lines of a text that comes in pieces. Cut at line feeds alone: readline of Node 24 also cuts at U+2028, which JSON allows inside a text. */
export async function* linesOf(pieces: AsyncIterable<string>): AsyncGenerator<string> {
  let rest = ''
  for await (const piece of pieces) {
    const lines = (rest + piece).split('\n')
    rest = lines.pop()!
    yield* lines
  }
  if (rest !== '') yield rest
}
