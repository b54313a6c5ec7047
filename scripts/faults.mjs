// `npm run faults [-- --only NAME] [--json] [--page]`: every fault of the table on a toy model; see dev/results/reliability.md.
import { runMain } from './lib/run-main.mjs'

runMain('faults')
