// A folder that appears complete or not at all: what a killed process left is never taken for complete and does not block the next.
import { existsSync, readdirSync, renameSync, rmdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { isFolder, lackOfRoom, Mismatch, makeFolder, namesFile } from '../core/index.ts'

interface WholeFolder {
  /** Where its files are written to meanwhile. */
  readonly unfinished: string
  /** Gives the files their place; config.json comes last. */
  commit(): void
  discard(): void
}

const mark = '.unfinished'

export function openWholeFolder(out: string): WholeFolder {
  const there = existsSync(out)
  const unfinished = there ? join(out, mark) : `${out}${mark}`
  if (there && !isFolder(out)) throw new Mismatch({ where: out, expected: 'a folder, or a new name', got: 'a file' })
  const discard = () => rmSync(unfinished, { recursive: true, force: true })
  if (existsSync(unfinished)) discard()
  makeFolder(unfinished)
  return { unfinished, discard, commit: () => (there ? moveFiles(unfinished, out) : renameSync(unfinished, out)) }
}

/** What `write` puts into a new folder, whole or not at all. */
export async function writeWholeFolder<T>(out: string, write: (unfinished: string) => Promise<T>): Promise<T> {
  const folder = openWholeFolder(out)
  try {
    const result = await write(folder.unfinished)
    folder.commit()
    return result
  } catch (error) {
    folder.discard()
    throw lackOfRoom(error) ? namesFile(out, error) : error
  }
}

/** A folder that holds a model is refused, unless it is what a killed export left. */
export function requireNoModel(out: string): void {
  if (!isFolder(out) || existsSync(join(out, mark))) return
  const old = readdirSync(out).find((name) => /\.(safetensors|bin|pt|pth)$|\.index\.json$|^config\.json$/.test(name))
  if (old) throw new Mismatch({ where: out, expected: 'a folder without a model', got: old })
}

function moveFiles(from: string, to: string): void {
  const last = (name: string) => Number(name === 'config.json')
  for (const name of readdirSync(from).sort((a, b) => last(a) - last(b))) {
    rmSync(join(to, name), { recursive: true, force: true })
    renameSync(join(from, name), join(to, name))
  }
  rmdirSync(from)
}
