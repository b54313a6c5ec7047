// Golden data of the reference implementations, recomputed by the code that trains. One file a kind of data.
// May import every room but cli, and only cli imports it.
// Start reading at golden.ts, then kinds.ts; certificate.ts for the comparison with Python.
export { type Comparison, compareWithPython, readReference } from './certificate.ts'
export { useDevice } from './device.ts'
export * from './golden.ts'
export * from './kinds.ts'
export * from './own-quantities.ts'
export * from './python.ts'
