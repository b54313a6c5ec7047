// --import of this file, or of tsx when it is loaded already: see loader.mjs.
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { register } from './loader.mjs'

// no test cuts the power: what was written survives a killed process without waiting for the disk; a wrong descriptor still throws
fs.fsyncSync = (fd) => void fs.fstatSync(fd)
syncBuiltinESMExports()
register()

export { register }
