// `npm run soak -- --steps 10000 [--kills 100]`: long runs of a toy model with kills at random; `npm run soak -- long`: without
// kills. See dev/results/reliability.md.
import { runMain } from './lib/run-main.mjs'

runMain('soak', process.argv[2] === 'long' ? 'long' : 'main')
