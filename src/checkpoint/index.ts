// Checkpoints as bytes: safetensors, PyTorch zip files, sharded folders, PEFT adapters, checkpoints of a run, pickles of data.
// May import core, config, engine, tensor, nn, text, image, mask.
// Start reading at weights.ts; run-checkpoint.ts for what a training run saves.
export {
  type Adapter,
  AdapterConfig,
  type AdapterNames,
  type AdapterSettings,
  adapterConfigText,
  fitAdapter,
  fromFileName,
  languageModelNames,
  matchNames,
  readAdapter,
  toFileName,
  writeAdapter,
} from './adapter.ts'
export {
  byteLengthOf,
  type DType,
  dtypes,
  fromTorchDType,
  isDType,
  itemSize,
  showShape,
  toTorchDType,
} from './dtype.ts'
export { type ExportOptions, exportModel } from './export-model.ts'
export { type LoadOptions, loadWeights, type OpenOptions, readTensors, TensorReader, tensorSource } from './load.ts'
export { type LoadAdapterOptions, loadAdapter } from './lora.ts'
export { missingAndExtra, type Shapes } from './names.ts'
export { NumpyArray } from './numpy.ts'
export { type OnnxFile, type OnnxTensor, type OnnxUse, readOnnx } from './onnx.ts'
export { readPickle } from './pickle.ts'
export {
  type CheckOptions,
  type CheckpointFile,
  checkpointName,
  type FoundCheckpoint,
  type InvalidCheckpoint,
  listCheckpoints,
  newestValid,
  prune,
  sweep,
  whyDamaged,
  whyInvalid,
  writeCheckpoint,
} from './run-checkpoint.ts'
export { readRunState, type StoredRunState } from './run-state-file.ts'
export {
  readAll,
  readHeader,
  readTensorBytes,
  type SafetensorsHeader,
  type TensorData,
  type TensorRange,
  type TensorSource,
  writeSafetensors,
} from './safetensors.ts'
export { readTorch, readTorchBytes, type TorchFile, type TorchTensorRange } from './torch-file.ts'
export { type PlacedCheckpoint, placeTrainingCheckpoint } from './training-checkpoint.ts'
export { mergedFolder, releasedLoraScale } from './unmerged.ts'
export { openWeights, renamed, type WeightEntry, type WeightFolder } from './weights.ts'
export { type ShardOptions, writeWeights } from './weights-write.ts'
export { openWholeFolder, type WholeFolder } from './whole-folder.ts'
