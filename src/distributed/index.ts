// Distributed: several processes that train as one. `World` is the interface to the other processes; with one process it is the identity.
// May import core, config, engine, tensor.
// Start reading at world.ts; environment.ts for launchers, failure.ts for how a run of several ends.
export { backendNames } from './backend.ts'
export { deviceIndex, type Environment, podWarning, type Rank, readRank } from './environment.ts'
export { Divergence, exitCodeOf, exitCodes, mayRestart } from './failure.ts'
export { requireSameSettings, requireSameValues } from './handshake.ts'
export { inWorld, joinWorld } from './join.ts'
export { type Gathered, gatherOwned, ownersOf, shareOwned, wholeState } from './partition.ts'
export { alone, type NamedTensors, type World } from './world.ts'
