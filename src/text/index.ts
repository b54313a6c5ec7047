// Text: tokenizers, chat templates, prompt strings, stop detection.
// May import core.
// Start reading at tokenizer.ts, then prompts.ts.
export { encodeAnswer } from './answer.ts'
export { encodeRuns } from './cached-encode.ts'
export { type FolderTemplate, folderTemplate } from './folder-template.ts'
export { type ChatTurn, renderTemplate, templateOf } from './jinja.ts'
export type { TextRange } from './plain-text.ts'
export {
  buildPrompt,
  cutAnswer,
  expandImage,
  type ImageTokens,
  imagePlaceholder,
  imageString,
  type PromptParts,
  type PromptText,
  promptText,
  type Question,
  type QuestionAbout,
  referringPhrase,
  regionCaptionPrompt,
  regionQuestion,
  regionQuestions,
  regionString,
  segmentAnswers,
  segmentPrompt,
  segmentQuestion,
  segmentQuestions,
} from './prompts.ts'
export { openSentencePiece, type SentencePiece } from './sentencepiece.ts'
export { StopMatcher, type StopRule } from './stop-matcher.ts'
export {
  type ChatTemplate,
  type ChatTemplateName,
  chatTemplate,
  chatTemplates,
} from './templates.ts'
export { type EncodeOptions, loadTokenizer, type Tokenizer } from './tokenizer.ts'
export type { AddedToken, TokenizerJson } from './tokenizer-files.ts'
