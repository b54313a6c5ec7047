// The texts that the tokenizer of a miniature is trained on: captions of scenes in all prompts and answers.
import { captionWords, mainColours, planScene } from '../../src/scenes/index.ts'
import {
  buildPrompt,
  chatTemplates,
  regionQuestions,
  segmentAnswers,
  segmentQuestions,
  type TokenizerJson,
} from '../../src/text/index.ts'
import { trainByteLevelBpe } from '../lib/bpe-trainer.ts'
import tokens from './added-tokens.json' with { type: 'json' }

/** Added tokens of Sa2VA in the order of their ids; `<|end|>`, `<|user|>`, `<|assistant|>` stay plain text, as in the 4B model. */
export const sa2vaAddedTokens: readonly string[] = tokens

interface CorpusOptions {
  seed: number
  /** With the words for composed objects. */
  composed?: boolean
  /** Scenes whose captions are read. */
  scenes: number
}

/** Lines for tokenizer training. */
export function* corpusLines({ seed, scenes, composed }: CorpusOptions): Generator<string> {
  const image = { numTiles: 1, tokensPerTile: 1 }
  const templates = [chatTemplates.phi3_chat, chatTemplates.qwen_chat]
  const words = composed ? [...captionWords, ...mainColours] : captionWords
  for (const w of words) for (let i = 0; i < 4; i++) yield ` ${w}`
  for (let index = 0; index < scenes; index++) {
    const { caption } = planScene(seed, index)
    const template = templates[index % templates.length]!
    const region = regionQuestions[index % regionQuestions.length]!
    const segments = segmentQuestions(caption)
    yield buildPrompt({ ...image, regionTokens: [1], text: region, template })
    yield caption + template.suffix
    yield buildPrompt({ ...image, text: segments[index % segments.length]!, template })
    yield segmentAnswers[index % segmentAnswers.length]! + template.suffix
  }
}

/** A tokenizer.json in Qwen2's form; each word of a caption is one token with its leading space. */
export function trainSceneTokenizer(options: CorpusOptions & { maxMerges: number }): TokenizerJson {
  return trainByteLevelBpe(corpusLines(options), { maxMerges: options.maxMerges, addedTokens: sa2vaAddedTokens })
}
