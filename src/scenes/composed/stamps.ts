// Tux Paint's stamps as cut-out objects: Debian's package `tuxpaint-stamps-default`. They are under the GPL: read where they are
// installed, never copied into this package.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, sep } from 'node:path'
import { Mismatch } from '../../core/index.ts'
import { decodeRgba, type RgbaImage } from '../../image/index.ts'
import type { Cutout } from './cutouts.ts'

/** Where Debian installs them; ROUNDTRIP_STAMPS names another copy. */
export function stampsRoot(): string {
  const root = process.env.ROUNDTRIP_STAMPS || '/usr/share/tuxpaint/stamps'
  if (existsSync(root)) return root
  throw new Mismatch({
    where: 'stamps',
    expected: `the folder ${root} of Debian's package tuxpaint-stamps-default`,
    got: 'none',
    hint: 'apt install tuxpaint-stamps-default (161 MB), or set ROUNDTRIP_STAMPS to a copy of the folder',
  })
}

/** Letters, digits, coins and road signs: copies of one another rather than objects. */
const leftOut = /(^|\/)(symbols|roadsigns)\//

/** Pictures that have a sentence, sorted. */
export function stampFiles(root: string): string[] {
  const names = new Set(
    readdirSync(root, { recursive: true, encoding: 'utf8' }).map((name) => name.replaceAll(sep, '/')),
  )
  return [...names]
    .filter((name) => name.endsWith('.png') && names.has(name.replace(/png$/, 'txt')) && !leftOut.test(name))
    .sort()
}

/** One stamp; the picture is decoded to distinguish photographs and drawings. */
export async function readStamp(root: string, file: string): Promise<Cutout> {
  const stem = join(root, file.replace(/\.png$/, ''))
  const sentence = readFileSync(`${stem}.txt`, 'utf8').split('\n')[0]!
  const options = existsSync(`${stem}.dat`) ? readFileSync(`${stem}.dat`, 'utf8') : ''
  const vector = existsSync(`${stem}.svg`) || drawnFolder.test(file)
  return {
    file,
    kind: dirname(file).replace(/\/(cartoon|photo)\b.*/, ''),
    caption: captionOf(sentence, basename(stem)),
    oneWay: options.includes('nomirror'),
    photo: !vector && looksPhotographed(await decodeRgba(readFileSync(join(root, file)), file)),
  }
}

const drawnFolder = /(^|\/)(cartoon|easter|clothes)\//

/**
 * Photographs have many colours and noise: over 3,000 colours, over 0.3 of them per pixel, and fewer than a tenth of the neighbouring
 * pixels are equal. Drawings have flat areas or smooth shades.
 */
function looksPhotographed({ width, data }: RgbaImage): boolean {
  const colours = new Set<number>()
  let [pixels, pairs, equal] = [0, 0, 0]
  const colourAt = (at: number) => (data[at + 3]! < 250 ? -1 : (data[at]! << 16) | (data[at + 1]! << 8) | data[at + 2]!)
  for (let at = 0, before = -1; at < data.length; at += 4) {
    const colour = colourAt(at)
    if (colour >= 0) {
      pixels++
      colours.add(colour)
      if (before >= 0 && (at / 4) % width > 0) pairs++
      if (before === colour && (at / 4) % width > 0) equal++
    }
    before = colour
  }
  return colours.size > 3000 && colours.size > 0.3 * pixels && equal < 0.1 * pairs
}

/** `A spiny lobster, from Hawaii.` becomes `the spiny lobster`; a sentence that does not name the object gives way to the file's name. */
export function captionOf(sentence: string, stem: string): string {
  const clause = sentence.split(/[.!?,;:(—–]| - | (?:is|are|means|called|carries|stands for|gets) /u)[0]!
  const named = clause.replace(/[“”"„]/g, '').trim()
  const article = /^(an?|the|some) +(?=\S)/i
  if (article.test(named)) return `the ${named.replace(article, '')}`
  const words = named.split(/\s+/)
  if (named !== '' && words.length <= 3 && !/^(we|it|this|these|because|if|you)\b/i.test(named)) return named
  return `the ${stem
    .replace(/[^\p{L}]+/gu, ' ')
    .trim()
    .toLowerCase()}`
}
