// Recomputes what the SentencePiece library and InternLM2's tokenizer class did with the models of a golden folder.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type CheckRow, Mismatch } from '../core/index.ts'
import { loadTokenizer, openSentencePiece, type SentencePiece, type Tokenizer } from '../text/index.ts'
import { compareFields } from './compare.ts'

interface Case {
  text: string
  ids: number[]
  pieces: string[]
  decoded: string
}

type AddedCase = Omit<Case, 'pieces'> & { decoded_skip_special: string }

interface GoldenModel {
  name: string
  folder: string
  cases: Case[]
  decode: Pick<Case, 'ids' | 'decoded'>[]
  added?: { vocab_size_with_added: number; cases: AddedCase[]; decode: Omit<AddedCase, 'text'>[] }
}

export function verifySentencePiece(dir: string): CheckRow[] {
  const path = join(dir, 'cases.json')
  const { models } = JSON.parse(readFileSync(path, 'utf8')) as { models?: GoldenModel[] }
  if (!models?.length) throw new Mismatch({ where: path, field: 'models', expected: 'a list of models', got: models })
  return models.flatMap((golden) => modelRows(golden, join(dir, golden.folder)))
}

function modelRows(golden: GoldenModel, folder: string): CheckRow[] {
  const model = openSentencePiece(readFileSync(join(folder, 'tokenizer.model')), golden.name)
  const rows = [
    ...golden.cases.map((c) => compareFields(`${golden.name} ${JSON.stringify(c.text)}`, caseOf(model, c), c)),
    ...golden.decode.map(({ ids, decoded }) =>
      compareFields(`${golden.name} decode [${ids}]`, { decoded: model.decode(ids) }, { decoded }),
    ),
  ]
  return golden.added ? [...rows, ...addedRows(golden.name, golden.added, loadTokenizer(folder))] : rows
}

function caseOf(model: SentencePiece, { text, ids }: Case): Case {
  const found = model.encodePieces(text)
  return { text, ids: found.map((p) => p.id), pieces: found.map((p) => p.piece), decoded: model.decode(ids) }
}

function addedRows(name: string, added: NonNullable<GoldenModel['added']>, tokenizer: Tokenizer): CheckRow[] {
  const texts = (ids: number[], kept: number[]) => ({
    decoded: tokenizer.decode(kept),
    decoded_skip_special: tokenizer.decode(ids, { skipSpecial: true }),
  })
  const sizes = compareFields(`${name} size`, { size: tokenizer.vocabSize }, { size: added.vocab_size_with_added })
  const cases = added.cases.map(({ text, ids, decoded, decoded_skip_special }) => {
    const got = { ids: [...tokenizer.encode(text)], ...texts(ids, ids.slice(1)) }
    return compareFields(`${name} added ${JSON.stringify(text)}`, got, { ids, decoded, decoded_skip_special })
  })
  const decode = added.decode.map(({ ids, ...want }) =>
    compareFields(`${name} added decode [${ids}]`, texts(ids, ids), want),
  )
  return [sizes, ...cases, ...decode]
}
