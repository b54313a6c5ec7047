// The chat templates of the Sa2VA releases, as values, and the hub's Jinja templates.
import { Mismatch } from '../core/index.ts'

export interface ChatTemplate {
  readonly name: string
  /** Text before the first turn: no release uses one, in training or inference. */
  readonly system: string
  /** One user turn up to where the answer begins. */
  readonly instruction: (input: string) => string
  /** Ends an answer in training. */
  readonly suffix: string
  /** True: the suffix is the end of the answer, and no EOS token follows it in training. */
  readonly suffixAsEos: boolean
  /** Between turns, without loss. */
  readonly sep: string
  readonly stopWords: readonly string[]
}

const chatMl = (input: string) => `<|im_start|>user\n${input}<|im_end|>\n<|im_start|>assistant\n`

/** A template without a system text; an answer ends with the suffix, or with EOS if that is empty. */
function template(
  name: string,
  instruction: (input: string) => string,
  suffix: string,
  stopWords: readonly string[],
): ChatTemplate {
  return { name, system: '', instruction, suffix, suffixAsEos: suffix !== '', sep: '\n', stopWords }
}

const phi3 = (input: string) => `<|user|>\n${input}<|end|>\n<|assistant|>\n`
const vicuna = (input: string) => `USER: ${input} ASSISTANT:`

export const chatTemplates = {
  phi3_chat: template('phi3_chat', phi3, '<|end|>', ['<|end|>']),
  qwen_chat: template('qwen_chat', chatMl, '<|im_end|>', ['<|im_end|>', '<|endoftext|>']),
  internlm2_chat: template('internlm2_chat', chatMl, '<|im_end|>', ['<|im_end|>']),
  vicuna: template('vicuna', vicuna, '', []),
}

type ChatTemplateName = keyof typeof chatTemplates

/** The template of a config.json's `template` field. */
export function chatTemplate(name: string, where = 'config.json'): ChatTemplate {
  if (Object.hasOwn(chatTemplates, name)) return chatTemplates[name as ChatTemplateName]
  throw new Mismatch({ where, field: 'template', expected: Object.keys(chatTemplates).join(', '), got: name })
}
