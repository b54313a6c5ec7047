// An image as Qwen-VL takes it, without any weight: may run in a decoding thread.
import { patchImage } from './processor.ts'

export const module = import.meta.url
export const prepare = patchImage
