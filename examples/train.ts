// A run started from TypeScript: `node --import tsx train.ts MODEL DATA OUTPUT`. Settings are those of docs/reference.md.
import { type RunInput, train } from 'roundtrip-rl'

const [model, dataPath, output] = process.argv.slice(2)
const settings: RunInput = {
  model,
  dataPath,
  output,
  maxSteps: 2,
  batchSize: 2,
  evalRecords: 4,
  rl: { numGenerations: 4, maxCompletionLength: 24, gradientAccumulationSteps: 1 },
  data: { evalFraction: 0.5, workers: 0 },
  lora: { rank: 8, alpha: 16 },
  rewards: { modules: [{ path: './my-reward.ts', weight: 0.5 }] },
}
const { step, before, after } = await train(settings)
console.log(`step ${step}: cycle/iou ${before?.['cycle/iou']?.mean} -> ${after?.['cycle/iou']?.mean}`)
