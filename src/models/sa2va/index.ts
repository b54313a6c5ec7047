export { parseSa2VAConfig, readSa2VAConfig, type Sa2VAConfig, tokenGrid } from './config.ts'
export { type Features, type ImageInput, type Prompt, Prompter, prepareImage } from './inputs.ts'
export { exportSa2VA, isVideoOnly, type Loaded, openSa2VA } from './load.ts'
export { type DrawnMask, Sa2VA } from './model.ts'
