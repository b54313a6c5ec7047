// An image as Qwen2.5-VL takes it, without any weight: may run in a decoding thread.
import { patchImage } from './processor.ts'

export const module = import.meta.url
export const prepare = patchImage
