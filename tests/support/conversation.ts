// Conversations as the supervised trainer of Sa2VA encodes them, written out: parts apart, loss on the answers alone.
import { type ChatTemplate, encodeAnswer, type Tokenizer } from '../../src/text/index.ts'

interface Turn {
  /** User text, image already expanded. */
  input: string
  output: string
  /** False keeps the answer as context only. Default true. */
  withLoss?: boolean
}

interface EncodedConversation {
  inputIds: Int32Array
  /** The id where it counts, `ignoreLabel` elsewhere. */
  labels: Int32Array
  /** Ids cut off by maxLength. */
  truncated: number
}

export const ignoreLabel = -100

/**
 * Per turn: BOS (if the tokenizer has one), instruction(input), the answer with its end and with loss, separator without loss. A turn that ended without EOS lets the next one begin without BOS.
 */
export function encodeConversation(
  turns: readonly Turn[],
  template: ChatTemplate,
  tokenizer: Tokenizer,
  options: { maxLength: number },
): EncodedConversation {
  const ids: number[] = []
  const labels: number[] = []
  const push = (part: ArrayLike<number>, counts: boolean) => {
    for (let i = 0; i < part.length; i++) {
      ids.push(part[i]!)
      labels.push(counts ? part[i]! : ignoreLabel)
    }
  }
  const encode = (text: string) => tokenizer.encode(text, { addSpecial: false })
  const bos = tokenizer.bosId === undefined ? [] : [tokenizer.bosId]
  turns.forEach((turn, index) => {
    const counts = turn.withLoss ?? true
    if (index === 0 || !template.suffixAsEos) push(bos, false)
    push(encode((index === 0 ? template.system : '') + template.instruction(turn.input)), false)
    push(encodeAnswer(turn.output, template, tokenizer), counts)
    push(encode(template.sep), false)
  })
  return {
    inputIds: Int32Array.from(ids.slice(0, options.maxLength)),
    labels: Int32Array.from(labels.slice(0, options.maxLength)),
    truncated: Math.max(0, ids.length - options.maxLength),
  }
}
