// Text: tokenizers, chat templates, prompt strings, stop detection.
// May import core.
// Start reading at tokenizer.ts, then prompts.ts.
export { encodeAnswer } from './answer.ts'
export type { EncodeOptions, Tokenizer } from './base-tokenizer.ts'
export { encodeRuns } from './cached-encode.ts'
export { type FolderTemplate, folderTemplate } from './folder-template.ts'
export { type ChatTurn, renderTemplate, templateOf } from './jinja.ts'
export type { TextRange } from './plain-text.ts'
export {
  buildPrompt,
  cutAnswer,
  imagePlaceholder,
  type PromptText,
  type Question,
  type QuestionAbout,
  regionCaptionPrompt,
  regionQuestion,
  regionQuestions,
  segmentAnswers,
  segmentPrompt,
  segmentQuestion,
  segmentQuestions,
} from './prompts.ts'
export { openSentencePiece, type SentencePiece } from './sentencepiece.ts'
export { StopMatcher } from './stop-matcher.ts'
export {
  type ChatTemplate,
  chatTemplate,
  chatTemplates,
} from './templates.ts'
export { loadTokenizer } from './tokenizer.ts'
export type { AddedToken, TokenizerJson } from './tokenizer-files.ts'
