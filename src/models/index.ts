// Models: InternViT, language models, SAM2, and Sa2VA on top of them. Field names are checkpoint names.
// May import nn, text, image, mask, checkpoint and below.
// Start reading at sa2va/model.ts.
export { compareIds, compareNumbers, compareTensor, type Limit } from './compare.ts'
export { Decoder, loadLanguageModel, loraTargets } from './llm/index.ts'
export * from './sa2va/index.ts'
export { type Sam2Config, type Sam2Features, Sam2Model, sam2Config } from './sam2/index.ts'
export { verifyMisc } from './verify-misc.ts'
