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
  readAdapter,
  toFileName,
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
export { exportModel } from './export-model.ts'
export { loadWeights, type OpenOptions, readTensors, TensorReader, tensorSource } from './load.ts'
export { loadAdapter } from './lora.ts'
export { missingAndExtra, type Shapes } from './names.ts'
export { NumpyArray } from './numpy.ts'
export { type OnnxFile, type OnnxTensor, readOnnx } from './onnx.ts'
export { readPickle } from './pickle.ts'
export {
  checkpointName,
  listCheckpoints,
  newestValid,
  prune,
  sweep,
  whyDamaged,
  writeCheckpoint,
} from './run-checkpoint.ts'
export { readRunState } from './run-state-file.ts'
export {
  readAll,
  readHeader,
  readTensorBytes,
  type SafetensorsHeader,
  type TensorRange,
  type TensorSource,
  writeSafetensors,
} from './safetensors.ts'
export { readTorch, readTorchBytes, type TorchTensorRange } from './torch-file.ts'
export { placeTrainingCheckpoint } from './training-checkpoint.ts'
export { mergedFolder, releasedLoraScale } from './unmerged.ts'
export { openWeights, renamed, type WeightEntry, type WeightFolder } from './weights.ts'
export { writeWeights } from './weights-write.ts'
export { openWholeFolder } from './whole-folder.ts'
