// Models: InternViT, SAM2, Sa2VA on top of them and of a language model, and Qwen-VL. Field names are checkpoint names.
// May import llm, nn, text, image, mask, checkpoint and below.
// Start reading at sa2va/model.ts.
export * from './families.ts'
export * from './family.ts'
export { MobileSamFamily } from './mobilesam/family.ts'
export * from './model-sizes.ts'
export * from './open.ts'
export * from './qwen_vl/index.ts'
export * from './released-configs.ts'
export * from './sa2va/index.ts'
export * from './sa2va-qwen/index.ts'
