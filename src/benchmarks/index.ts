// Benchmarks: the published evaluation sets as they lie on disk, and their metrics to the letter of each protocol.
// May import data, mask, image, rewards, models, tracking, checkpoint, config, core. Knows no training.
// Start reading at benchmark.ts, then protocols.ts and summary.ts.
export { type AnswerImages, type AnswerOptions, answerWith, type ImageQuestions, type MaskAnswer } from './answer.ts'
export {
  type BenchmarkOptions,
  type BenchmarkRecord,
  countWarning,
  type MaskBenchmark,
  recordsOf,
} from './benchmark.ts'
export {
  type CompareOptions,
  type Comparison,
  compareResults,
  type MetricChange,
  type SentenceChange,
} from './compare.ts'
export { type AskJudge, judgePrompt, noJudge } from './dlc-bench.ts'
export { type MaskBenchmarkName, maskBenchmarks, type RegionBenchmarkName, regionBenchmarks } from './names.ts'
export { isMaskBenchmark, openBenchmark } from './open.ts'
export { type Prediction, type Predictions, predictionKey, readPredictions } from './predictions.ts'
export { type Protocol, protocolsOf, type SentenceScore } from './protocols.ts'
export { type PublishedColumn, publishedColumns } from './published.ts'
export { lisaSplit } from './reason-seg.ts'
export {
  type AnswerSettings,
  answerMasks,
  isRegionBenchmark,
  openRegionBenchmark,
  type RegionBenchmark,
  type RegionScores,
} from './region-benchmarks.ts'
export {
  type BenchmarkResult,
  type ResultFacts,
  readResult,
  resultFile,
  resultOf,
  type StoredResult,
  tableRow,
  writeResult,
} from './result.ts'
export type { BenchmarkHost } from './rows.ts'
export { type AnswerRun, answerBenchmark } from './run.ts'
export { type ScoredSentence, scoreRecord, scoreRecords, unknownPredictions } from './score.ts'
export { type SplitSummary, type SummaryOptions, summariseSplit } from './summary.ts'
export { overlapOf, sa2vaTarget, type Target, unionTarget } from './target.ts'
