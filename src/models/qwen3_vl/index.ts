export { type Qwen3VisionConfig, readQwen3Vision } from './config.ts'
export { Qwen3Vision, type VisionOutput } from './vision.ts'
