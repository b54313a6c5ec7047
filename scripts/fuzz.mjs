// `npm run fuzz -- FORMAT... [--n N] [--seed S] [--keep FOLDER] [--json]`: damaged files against the readers; see dev/fuzzing.md.
import { runMain } from './lib/run-main.mjs'

runMain('fuzz')
