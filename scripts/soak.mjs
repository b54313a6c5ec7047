// `npm run soak -- --steps 10000 [--kills 100]`: long runs of a toy model with kills at random; see docs/reliability.md.
import { runMain } from './lib/run-main.mjs'

runMain('soak')
