// The miniature before it has learned anything: config, tokenizer and weights drawn from a seed. docs/recipes.md has the whole recipe.
import { log } from '../src/core/index.ts'
import { makeMiniature } from '../src/rl/index.ts'

const [out, seed = '1'] = process.argv.slice(2)
if (!out) throw new Error('usage: make-miniature OUT [SEED]')
makeMiniature(out, Number(seed))
log.info(`${out}: an untrained miniature, seed ${seed}`)
