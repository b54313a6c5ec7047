// Emoji as cut-out objects: Microsoft's Fluent pictures (npm `@lobehub/fluent-emoji-3d`, MIT) with the names and categories of npm
// `emoji-datasource-google` (MIT). Weights trained on them can be shipped.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { findPackage, Mismatch, packagePlaces, readJson } from '../../core/index.ts'
import type { Cutout } from './cutouts.ts'

const packages = ['emoji-datasource-google@16.0.0', '@lobehub/fluent-emoji-3d@1.1.0'] as const
const installEmoji = `npm install ${packages.join(' ')}`

interface EmojiFolders {
  names: string
  pictures: string
}

export function emojiFolders(): EmojiFolders {
  const [names, pictures] = packages.map((spec) => findPackage(spec.replace(/@[\d.]+$/, '')))
  if (names && pictures) return { names: join(names, 'emoji.json'), pictures: join(pictures, 'assets') }
  throw new Mismatch({
    where: 'emoji',
    expected: `the npm packages ${packages.join(' and ')} in ${packagePlaces().join(' or ')}`,
    got: [names, pictures].every((folder) => folder === null) ? 'none of them' : 'one of them',
    hint: `${installEmoji} (107 MB)`,
  })
}

interface EmojiRow {
  name: string
  unified: string
  non_qualified: string | null
  category: string
  subcategory: string
}

/** People, faces, flags and signs are left out: many pictures of nearly the same thing. */
const categories = ['Activities', 'Animals & Nature', 'Food & Drink', 'Objects', 'Travel & Places']
const leftOut = ['time', 'arrow']

export function readEmoji({ names, pictures }: EmojiFolders): Cutout[] {
  const rows = readJson(names) as EmojiRow[]
  const cutouts = rows.flatMap(({ name, unified, non_qualified, category, subcategory }) => {
    if (!categories.includes(category) || leftOut.includes(subcategory)) return []
    const codes = [unified, non_qualified ?? unified].map((code) => `${code.toLowerCase()}.webp`)
    const file = codes.find((code) => existsSync(join(pictures, code)))
    const caption = `the ${name.toLowerCase().replace(/\s+/g, ' ').trim()}`
    return file ? [{ file, kind: `${category}/${subcategory}`.toLowerCase(), caption }] : []
  })
  return cutouts.sort((a, b) => (a.file < b.file ? -1 : 1))
}
