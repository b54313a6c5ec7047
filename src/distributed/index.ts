// The processes that train together, behind one small face. `alone` is the only process: every call is the identity.
// May import core, config, engine and tensor.
// Start reading at world.ts.
export { alone, type Json, type NamedTensors, type SumOptions, type World } from './world.ts'
