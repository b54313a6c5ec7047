// Golden data of the reference implementations, recomputed by the code that trains. One file a kind of data.
// May import every room but cli, and only cli imports it.
// Start reading at golden.ts, then kinds.ts; certificate.ts for the comparison with Python.
export { type CertificateRow, compareWithPython, readReference } from './certificate.ts'
export { useDevice } from './device.ts'
export { findGolden, type Golden, type GoldenKind } from './golden.ts'
export { verifyGolden } from './kinds.ts'
export { computeOwn, type Quantities, subjectFamily, trlSettings } from './own-quantities.ts'
export { missingInPython, type PythonVersions, Scratch } from './python.ts'
