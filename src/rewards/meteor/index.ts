// METEOR of caption pairs, equal to NLTK's on WordNet 3.0; Porter stems and WordNet synonyms for others that need them.
// May import core, config and the settings of the rewards. The table comes from scripts/gen-wordnet.ts and is read at the first synonym lookup.
// Start reading at score.ts, then align.ts.
export * from './porter.ts'
export { type MeteorDetail, meteor, meteorDetail } from './score.ts'
export { wordNet } from './wordnet.ts'
