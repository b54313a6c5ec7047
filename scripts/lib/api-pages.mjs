// A page of names for each door of the package, read from the declarations that `tsc` writes: signatures and what is said of them.
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const declaration =
  /^export (?:declare )?(?:abstract )?(function|const|class|interface|type) (\w+)[\s\S]*?(?=^(?:export|\/\*\*|declare|import|interface|type|class|function|const)\b|^\/\*\*|(?![\s\S]))/gm
const longest = 14 // lines of a signature; the rest is in the declarations of the package

/** The comment that ends where a declaration begins. */
function saidBefore(text, at) {
  const comment = /\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\s*$/.exec(text.slice(0, at))
  if (!comment) return ''
  return comment[1]
    .replace(/^\s*\* ?/gm, ' ')
    .replace(/\s+/g, ' ')
    .trim()
}

function shortened(signature) {
  const clean = signature
    .replace(/^export (declare )?/, '')
    .replace(/\n\s*(#private|private .*);/g, '')
    .replace(/import\("[^"]*"\)\./g, '')
    .replace(/^ {4}/gm, '  ')
    .replace(/;$/gm, '')
    .trimEnd()
  const lines = clean.split('\n')
  if (lines.length <= longest) return clean
  return [...lines.slice(0, longest - 1), `${/^ */.exec(lines[longest - 1])[0]}...`, lines.at(-1)].join('\n')
}

function declaredIn(file) {
  const text = readFileSync(file, 'utf8')
  const found = new Map()
  for (const match of text.matchAll(declaration)) {
    const [whole, kind, name] = match
    if (!found.has(name)) found.set(name, { kind, signature: shortened(whole), says: saidBefore(text, match.index) })
  }
  return found
}

/** Every name that a door gives, with its declaration: [name, {kind, signature, says}]. */
export function namesOf(file) {
  const text = readFileSync(file, 'utf8')
  const found = declaredIn(file)
  for (const [, from] of text.matchAll(/^export \* from '(.*)'/gm))
    for (const [name, what] of namesOf(resolve(file, from))) found.set(name, what)
  for (const [, list, from] of text.matchAll(/^export (?:type )?\{([^}]*)\} from '(.*)'/gm)) {
    const target = namesOf(resolve(file, from))
    for (const entry of list.split(',').map((word) => word.trim().replace(/^type /, ''))) {
      if (entry === '') continue
      const [name, as = name] = entry.split(' as ')
      const what = target.get(name)
      if (!what) throw new Error(`${file}: ${name} was not found in ${from}`)
      found.set(as, what)
    }
  }
  for (const [name, what] of givenOn(file, text)) if (what) found.set(name, what)
  return found
}

/** Names that a file imports and gives on, in two statements. */
function* givenOn(file, text) {
  const imported = [...text.matchAll(/^import (?:type )?\{([^}]*)\} from '(\..*)'/gm)]
  for (const [, list] of text.matchAll(/^export (?:type )?\{([^}]*)\};/gm))
    for (const name of list.split(',').map((word) => word.trim().replace(/^type /, '')))
      for (const [, names, from] of imported)
        if (new RegExp(`\\b${name}\\b`).test(names)) yield [name, namesOf(resolve(file, from)).get(name)]
}

const resolve = (file, from) => join(dirname(file), from.replace(/\.ts$/, '.d.ts'))

const titles = { function: 'Functions', class: 'Classes', const: 'Values', interface: 'Types', type: 'Types' }

/** The page of one door. */
export function apiPage(door, says, file) {
  const names = [...namesOf(file)].sort(([a], [b]) => (a < b ? -1 : 1))
  const lines = [`# ${door}`, '', says, '', 'Written by `npm run gen-api` from the declarations of the package.']
  for (const title of ['Functions', 'Classes', 'Values', 'Types']) {
    const some = names.filter(([, what]) => titles[what.kind] === title)
    if (some.length > 0) lines.push('', `## ${title}`)
    for (const [name, { signature, says: sentence }] of some)
      lines.push('', `### ${name}`, ...(sentence ? ['', sentence] : []), '', '```ts', signature, '```')
  }
  return `${lines.join('\n')}\n`
}
