// Two optimizations of sampling against the plain way, in one run with one thread: prompts of one image share its prefix, and masks of one
// image are drawn together. 8 scenes with 6 phrases and 6 regions each.
import { fileURLToPath } from 'node:url'
import { generate } from '../src/llm/index.ts'
import { type Features, openSa2VA, type Prompt, prepareImage, type Sa2VA } from '../src/models/index.ts'
import { makeScene, sceneExample } from '../src/scenes/index.ts'
import { noGrad, randn, setThreads, tidy } from '../src/tensor/index.ts'
import { type BenchRow, inTurn } from './bench.ts'

const [numScenes, numEach, rounds] = [8, 6, 7]
const words = ['red circle', 'blue square', 'large star', 'small green thing', 'plain shape on the left', 'striped one']

/** The model without the method that finds the common prefix of prompts. */
function unshared(model: Sa2VA) {
  const { placement, decoder } = model
  return { placement, decoder, promptEmbeddings: (p: Prompt) => model.promptEmbeddings(p) }
}

function elapsedMs(work: () => unknown): number {
  const from = performance.now()
  noGrad(() => tidy(() => void work()))
  return performance.now() - from
}

const compare = (name: string, ours: () => unknown, other: () => unknown): Promise<BenchRow> =>
  inTurn({ name, unit: 'ms', rounds }, elapsedMs, ours, other)

export async function run(): Promise<BenchRow[]> {
  setThreads(1)
  const loaded = openSa2VA(fileURLToPath(new URL('../assets/miniature', import.meta.url)), { dtype: 'float32' })
  const { model, prompter } = loaded
  const scenes = Array.from({ length: numScenes }, (_, i) => sceneExample(makeScene(3, i)))
  const features: Features[] = scenes.map((s) => model.encode(prepareImage(s.image, loaded.cfg)))
  const phrases = features.flatMap((f) => words.map((w) => prompter.segment(f, `the ${w}`)))
  const regions = scenes.flatMap((s, i) => words.map(() => prompter.describe(features[i]!, s.mask)))
  const options = { maxNewTokens: 24, stopStrings: prompter.template.stopWords, segId: prompter.segId }
  const answer = (prompts: readonly Prompt[], speaker: Parameters<typeof generate<Prompt>>[0]) => () =>
    void generate(speaker, prompter.tokenizer, prompts, options)
  const prompts = tidy(() => noGrad(() => model.segPrompts(randn([numEach, loaded.cfg.llm.hidden_size]))))
  const together = () => {
    for (const f of features) model.drawMasks(f, prompts)
  }
  const oneByOne = () => {
    for (const f of features) for (let i = 0; i < numEach; i++) model.drawMasks(f, prompts.narrow(0, i, 1))
  }
  return [
    await compare('48 phrases answered, image read once', answer(phrases, model), answer(phrases, unshared(model))),
    await compare('48 regions described, image read once', answer(regions, model), answer(regions, unshared(model))),
    await compare('48 masks drawn, an image at a time', together, oneByOne),
  ]
}
