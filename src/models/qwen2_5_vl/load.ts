import { loadWeights, openWeights, renamed } from '../../checkpoint/index.ts'
import { Mismatch } from '../../core/index.ts'
import { type DecoderOpenOptions, int8Slots } from '../../llm/index.ts'
import { cuda } from '../../tensor/index.ts'
import { loadTokenizer, type Tokenizer } from '../../text/index.ts'
import { type QwenVLConfig, readQwenVLConfig } from './config.ts'
import { type QwenFeatures, type QwenPrompt, QwenVL } from './model.ts'
import { type ProcessorConfig, readProcessorConfig } from './processor.ts'

export interface LoadedQwenVL {
  dir: string
  cfg: QwenVLConfig
  processor: ProcessorConfig
  model: QwenVL
  tokenizer: Tokenizer
}

/** Names as released. Newer files say model.visual and model.language_model; a wrapper puts another `model.` before them. */
export function releasedName(name: string): string {
  const inner = name.replace(/^model\.(?=(model\.(visual|language_model)|lm_head)\.)/, '')
  return inner.replace(/^model\.visual\./, 'visual.').replace(/^model\.language_model\./, 'model.')
}

/** A Qwen2.5-VL folder as the hub has it. */
export function openQwenVL(dir: string, { frozenWeights, ...options }: DecoderOpenOptions = {}): LoadedQwenVL {
  if (options.device?.startsWith('cuda')) cuda.use(options.device)
  const cfg = readQwenVLConfig(dir)
  const folder = renamed(openWeights(dir), releasedName)
  const tokenizer = loadTokenizer(dir)
  const model = new QwenVL(cfg)
  const unused = cfg.llm.tie_word_embeddings ? [/^lm_head\.weight$/] : []
  try {
    loadWeights(model, folder, { ...options, int8: int8Slots(model.decoder, frozenWeights), unused })
  } catch (error) {
    for (const t of model.parameters().values()) t.dispose()
    throw error
  }
  model.decoder.computeIn(options.dtype ?? model.placement.dtype)
  return { dir, cfg, processor: readProcessorConfig(dir), model, tokenizer }
}

/** One user turn about images, as the released chat template renders it, up to the assistant's answer. */
export function chatText(question: string, tokensOfImages: readonly number[], system = 'You are a helpful assistant.') {
  const pads = tokensOfImages.map((n) => `<|vision_start|>${'<|image_pad|>'.repeat(n)}<|vision_end|>`).join('')
  return `<|im_start|>system\n${system}<|im_end|>\n<|im_start|>user\n${pads}${question}<|im_end|>\n<|im_start|>assistant\n`
}

export function questionPrompt(loaded: LoadedQwenVL, question: string, images: readonly QwenFeatures[]): QwenPrompt {
  const { tokenizer, cfg } = loaded
  const text = chatText(
    question,
    images.map((f) => f.tokens.size(0)),
  )
  const ids = tokenizer.encode(text, { addSpecial: false })
  const asked = images.reduce((n, f) => n + f.tokens.size(0), 0)
  const found = ids.filter((id) => id === cfg.image_token_id).length
  if (found === asked) return { ids, images }
  throw new Mismatch({
    where: loaded.dir,
    field: 'image_token_id',
    expected: `${asked} tokens <|image_pad|> in the prompt`,
    got: found,
    hint: 'a question must not contain the token, and tokenizer and config.json must agree on its id',
  })
}
