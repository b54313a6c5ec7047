// `npm run faults [-- --only NAME] [--json] [--page]`: every fault of the table on a toy model; see docs/reliability.md.
import { runMain } from './lib/run-main.mjs'

runMain('faults')
