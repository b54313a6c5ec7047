// A user's program that trains through the library: node --import tsx library-work.ts MODEL OUTPUT. Prints the result.
import { train } from '../../src/public/index.ts'

const [model, output] = process.argv.slice(2)
const result = await train({
  ...{ model: model!, output: output!, device: 'cpu', threads: 1, dataPath: 'scenes:24', data: { workers: 0 } },
  ...{ evalRecords: 0, batchSize: 2, maxSteps: 1, saveSteps: 0, tensorboard: false, checkGroups: false },
  ...{ rl: { numGenerations: 2, maxCompletionLength: 5 }, lora: { rank: 4, alpha: 8 } },
})
process.stdout.write(`${JSON.stringify(result)}\n`)
