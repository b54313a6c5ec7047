// README.md of a model that a run trained, beside its weights.
import { existsSync } from 'node:fs'
import { basename, dirname, isAbsolute, join, resolve } from 'node:path'
import { parse } from 'yaml'
import { newestValid } from '../checkpoint/index.ts'
import { atomicWrite, readJsonObject, readTextFile, shellWord } from '../core/index.ts'
import { cardOfRun, cardPicture, type ModelCard, modelCard } from '../dashboard/index.ts'
import { readRun, runFiles } from '../tracking/index.ts'

export interface ExportedModel {
  /** Folder of the exported model. */
  out: string
  /** What it is to be called; its folder's name unless given. */
  name?: string
  /** Folder of the model that was trained. */
  source: string
  /** The run folder. */
  run: string
  /** Step whose weights were exported. */
  step: number
  /** The EMA copy; the run has no metrics of it. */
  ema?: boolean
}

const pictureFile = 'roundtrip.png'

/** The run that wrote a checkpoint folder, or whose newest checkpoint is meant, and the step of the weights; null if there is none. */
export function runOfCheckpoint(checkpoint: string): { run: string; step: number } | null {
  const folder = resolve(checkpoint)
  const isRun = (path: string) => existsSync(join(path, runFiles.events))
  const newest = isRun(folder) ? newestValid(folder, { hashes: false }).checkpoint : null
  if (newest) return { run: folder, step: newest.step }
  const step = /^checkpoint_step_(\d+)$/.exec(basename(folder))?.[1]
  return step !== undefined && isRun(dirname(folder)) ? { run: dirname(folder), step: Number(step) } : null
}

/** Writes README.md and a picture where the run kept one; gives the names of what was written. */
export async function writeExportedCard(model: ExportedModel): Promise<string[]> {
  const run = readRun(model.run)
  const { data, ...facts } = cardOfRun(run, model.step)
  const name = model.name ?? basename(resolve(model.out))
  const picture = await cardPicture(run, model.step)
  if (picture) atomicWrite(join(model.out, pictureFile), picture.png)
  const card: ModelCard = {
    ...facts,
    name,
    baseModel: modelName(model.source),
    license: licenseOf(model.source),
    data: { ...data, name: isAbsolute(data.name) ? basename(data.name) : data.name },
    ...(model.ema ? { before: undefined, after: undefined, evalRecords: undefined } : {}),
    picture: picture && { file: pictureFile, text: picture.text },
    loading: loadingOf(model.out, name),
  }
  atomicWrite(join(model.out, 'README.md'), modelCard(card))
  return ['README.md', ...(picture ? [pictureFile] : [])]
}

/** The hub's name if the folder has it, else the folder's name: a local path does not help a reader. */
export function modelName(source: string): string {
  const cached = /models--([^/]+)--([^/]+)(?:\/|$)/.exec(resolve(source))
  if (cached) return `${cached[1]}/${cached[2]}`
  const named = configOf(source)['_name_or_path']
  return typeof named === 'string' && /^[\w.-]+\/[\w.-]+$/.test(named) ? named : basename(resolve(source))
}

/** That of the source's model card, if it can be read. */
export function licenseOf(source: string): string | undefined {
  try {
    const head = /^---\n([\s\S]*?)\n---/.exec(readTextFile(join(source, 'README.md')))?.[1]
    const { license } = (head ? parse(head, { uniqueKeys: false }) : {}) as { license?: unknown }
    return typeof license === 'string' ? license : undefined
  } catch {
    return undefined
  }
}

function configOf(folder: string): Record<string, unknown> {
  const path = join(folder, 'config.json')
  return existsSync(path) ? readJsonObject(path) : {}
}

/** Our commands load every family; the Python code what it knows or what the folder brings along. */
function loadingOf(out: string, name: string): ModelCard['loading'] {
  const { auto_map, model_type } = configOf(out)
  const asked =
    model_type === 'sa2va_chat' ? 'segment "the red cup" --image photo.png --out mask.png' : 'eval --data PATH'
  const ours = { title: 'With roundtrip', language: 'sh', code: `npx roundtrip-rl ${asked} --model ${shellWord(name)}` }
  const python = (title: string, loader: string, trusted: string) => ({
    title,
    language: 'python',
    code: [
      `from transformers import ${loader}, AutoProcessor`,
      '',
      `model = ${loader}.from_pretrained("${name}", torch_dtype="auto"${trusted})`,
      `processor = AutoProcessor.from_pretrained("${name}"${trusted})`,
    ].join('\n'),
  })
  if (model_type === 'qwen2_5_vl' || model_type === 'qwen3_vl')
    return [ours, python('In Python', 'AutoModelForImageTextToText', '')]
  if (auto_map === undefined) return [ours]
  const title = 'In Python, with the code that the folder brings along'
  return [ours, python(title, 'AutoModel', ', trust_remote_code=True')]
}
