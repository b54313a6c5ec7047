// Core: errors, assertions, log, seeded random streams, small file helpers. Everybody may use it.
// Imports no other room.
// Start reading at errors.ts.
export type { CheckRow } from './check.ts'
export { crc32 } from './crc32.ts'
export { assert, Mismatch, type MismatchInfo, messageOf, Unavailable, unavailableCode } from './errors.ts'
export { refuseFailedDownload } from './failed-download.ts'
export {
  atomicWrite,
  atomicWriteJson,
  diskTrouble,
  hashFile,
  humanBytes,
  lackOfRoom,
  replaceFile,
  sha256,
  syncPath,
  temporaryFolder,
  writeAll,
} from './files.ts'
export { type HubKind, hubFolder, hubHome, hubSnapshotOf, isHubId, modelFolder, repositoryFolder } from './hub-cache.ts'
export {
  isObject,
  type JsonLine,
  type JsonObject,
  parseJson,
  readJson,
  readJsonLines,
  readJsonObject,
  typeOf,
} from './json.ts'
export { linesOf } from './lines.ts'
export { type LogLevel, log, printable } from './log.ts'
export { loadExport } from './module.ts'
export { findPackage, packagePlaces } from './npm-package.ts'
export { cacheFolder, packageRoot } from './paths.ts'
export { type ProtoField, protoBool, protoBytes, protoFields, protoFloat, protoInt, protoText } from './protobuf.ts'
export { RandomStream, shuffled, stream, streamId } from './random.ts'
export { redactor } from './redact.ts'
export {
  fileBelow,
  readBytes,
  readTextFile,
  regularFile,
  requireBelow,
  requireOwnFolder,
  unreadable,
} from './regular-file.ts'
export { readBody } from './reply-body.ts'
export { timerMs } from './timer.ts'
