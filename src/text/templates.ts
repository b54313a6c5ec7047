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

export const chatTemplates = {
  phi3_chat: {
    name: 'phi3_chat',
    system: '',
    instruction: (input) => `<|user|>\n${input}<|end|>\n<|assistant|>\n`,
    suffix: '<|end|>',
    suffixAsEos: true,
    sep: '\n',
    stopWords: ['<|end|>'],
  },
  qwen_chat: {
    name: 'qwen_chat',
    system: '',
    instruction: chatMl,
    suffix: '<|im_end|>',
    suffixAsEos: true,
    sep: '\n',
    stopWords: ['<|im_end|>', '<|endoftext|>'],
  },
  internlm2_chat: {
    name: 'internlm2_chat',
    system: '',
    instruction: chatMl,
    suffix: '<|im_end|>',
    suffixAsEos: true,
    sep: '\n',
    stopWords: ['<|im_end|>'],
  },
  vicuna: {
    name: 'vicuna',
    system: '',
    instruction: (input) => `USER: ${input} ASSISTANT:`,
    suffix: '',
    suffixAsEos: false,
    sep: '\n',
    stopWords: [],
  },
} as const satisfies Record<string, ChatTemplate>

export type ChatTemplateName = keyof typeof chatTemplates

/** The template of a config.json's `template` field. */
export function chatTemplate(name: string, where = 'config.json'): ChatTemplate {
  if (Object.hasOwn(chatTemplates, name)) return chatTemplates[name as ChatTemplateName]
  throw new Mismatch({ where, field: 'template', expected: Object.keys(chatTemplates).join(', '), got: name })
}
