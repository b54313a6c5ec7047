export { parseSa2VAConfig, readSa2VAConfig, type Sa2VAConfig, tokenGrid } from './config.ts'
export { Sa2VAFamily } from './family.ts'
export { GroundedModule, GroundingEncoder, type HiddenLayers, hiddenLayers } from './grounding.ts'
export { type Features, idsOf, type Prompt, Prompter, prepareImage, requirePixels, samPrecision } from './inputs.ts'
export { describeLlm, describeSam, groundingParts, inspectSa2VA, reportOf } from './inspect.ts'
export {
  exportSa2VA,
  fillModel,
  isVideoOnly,
  type Loaded,
  openModelWeights,
  openSa2VA,
  requireVocabulary,
  type Sa2VAOpenOptions,
  withRounding,
} from './load.ts'
export { Sa2VA } from './model.ts'
export type { ImageInput } from './prepare.ts'
