// Tensors of libtorch: methods named after ATen, scopes, gradients, generators, devices.
// May import engine, core.
// Start reading at tensor.ts and scope.ts; ops.gen.ts is generated from ops.list.
export * from './aten.ts'
export * from './autograd.ts'
export * from './compat.ts'
export * from './device.ts'
export { type DType, isFloating, itemBytes, type MemoryFormat, type Scalar, typedArray } from './dtype.ts'
export * from './files.ts'
export * from './flash.ts'
export { Generator, manualSeed } from './generator.ts'
export { borrow, LentMemory, type Loan } from './lent-memory.ts'
export * from './ops.gen.ts'
export * from './optim.ts'
export * from './products.ts'
export * from './scope.ts'
export { int64Tensor, Tensor, type TensorOptions, tensor } from './tensor.ts'
export * from './threads.ts'
export * from './uniform.ts'
