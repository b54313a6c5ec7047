// Text: tokenizers, chat templates, prompt strings, stop detection.
// May import core.
// Start reading at tokenizer.ts, then prompts.ts.
export * from './answer.ts'
export type * from './base-tokenizer.ts'
export * from './cached-encode.ts'
export * from './folder-template.ts'
export * from './jinja.ts'
export type { TextRange } from './plain-text.ts'
export * from './prompts.ts'
export * from './sentencepiece.ts'
export * from './stop-matcher.ts'
export * from './templates.ts'
export * from './tokenizer.ts'
export type { TokenizerJson } from './tokenizer-files.ts'
