// The pages of docs/api, one per entry point of the package, from the declarations that `tsc` writes: complete types and comments.
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const declaration =
  /^(?:export )?(?:declare )?(?:abstract )?(function|const|class|interface|type) (\w+)[\s\S]*?(?=^(?:export|\/\*\*|declare|import|interface|type|class|function|const)\b|^\/\*\*|(?![\s\S]))/gm

/** The comment right before a declaration, on one line. */
function commentBefore(text, at) {
  const comment = /\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\s*$/.exec(text.slice(0, at))
  if (!comment) return ''
  return comment[1]
    .replace(/^\s*\* ?/gm, ' ')
    .replace(/\s+/g, ' ')
    .trim()
}

/** The declaration without private members and import paths. */
function cleaned(text) {
  return text
    .replace(/^export /, '')
    .replace(/^declare /, '')
    .replace(/\n\s*(#private|private .*);/g, '')
    .replace(/import\("[^"]*"\)\./g, '')
    .replace(/^ {4}/gm, '  ')
    .replace(/;$/gm, '')
    .trimEnd()
}

const isType = (kind) => kind === 'type' || kind === 'interface' || kind === 'class'
const declared = new Map()

/** Declarations of a file: `values` and `types` by name; overloads of a function are joined. */
function declaredIn(file) {
  if (declared.has(file)) return declared.get(file)
  const text = readFileSync(file, 'utf8')
  const found = { values: new Map(), types: new Map() }
  declared.set(file, found)
  for (const match of text.matchAll(declaration)) {
    const [whole, kind, name] = match
    const says = commentBefore(text, match.index) || (file.endsWith('.gen.d.ts') ? `The op \`aten::${name}\`.` : '')
    const entry = { file, kind, signature: cleaned(whole), says }
    const overload = kind === 'function' && found.values.get(name)
    if (overload) overload.signature += `\n${entry.signature}`
    else if (!isType(kind) || kind === 'class') found.values.set(name, entry)
    if (isType(kind)) found.types.set(name, entry)
  }
  return found
}

const resolve = (file, from) => join(dirname(file), from.replace(/\.ts$/, '.d.ts'))
const entriesOf = (list) => list.split(',').flatMap((word) => (word.trim() === '' ? [] : [word.trim()]))

/** Where a name is declared, through re-exports and imports; `asType` prefers the type of a name that is both. */
function lookUp(file, name, asType, seen = new Set()) {
  if (seen.has(file)) return undefined
  seen.add(file)
  const { values, types } = declaredIn(file)
  const own = asType ? (types.get(name) ?? values.get(name)) : (values.get(name) ?? types.get(name))
  if (own) return own
  const text = readFileSync(file, 'utf8')
  for (const [, list, from] of text.matchAll(/^(?:export|import) (?:type )?\{([^}]*)\} from '(\..*)'/gm))
    for (const entry of entriesOf(list)) {
      const [original, as = original] = entry.replace(/^type /, '').split(' as ')
      if (as === name) return lookUp(resolve(file, from), original, asType, seen)
    }
  for (const [, from] of text.matchAll(/^export (?:type )?\* from '(\..*)'/gm)) {
    const found = lookUp(resolve(file, from), name, asType, seen)
    if (found) return found
  }
  return undefined
}

/** Every name that an entry point exports, with its declaration. */
export function namesOf(file) {
  const text = readFileSync(file, 'utf8')
  const found = new Map()
  for (const [, types, list, from] of text.matchAll(/^export (type )?\{([^}]*)\} from '(.*)'/gm))
    for (const entry of entriesOf(list)) {
      const [name, as = name] = entry.replace(/^type /, '').split(' as ')
      const what = lookUp(resolve(file, from), name, types !== undefined || entry.startsWith('type '))
      if (!what) throw new Error(`${file}: ${name} was not found in ${from}`)
      if (what.says === '') throw new Error(`${name} (${what.file}) is public and has no comment`)
      found.set(as, what)
    }
  return found
}

const withoutComments = (text) => text.replace(/\/\*[\s\S]*?\*\/|\/\/.*|'[^'\n]*'/g, '')

/** Types that the declarations mention but that are not public: shown so that every type is complete. */
function mentioned(names, isPublic) {
  const found = new Map()
  for (const { file, signature } of names.values())
    for (const [name] of withoutComments(signature).matchAll(/(?<![\w.])[A-Z]\w+/g)) {
      const what = isPublic(name) || found.has(name) ? undefined : lookUp(file, name, true)
      if (what && what.signature.split('\n').length <= 60) found.set(name, what)
    }
  return found
}

const titles = { function: 'Functions', class: 'Classes', const: 'Values', interface: 'Types', type: 'Types' }
const inOrder = (names) => [...names].sort(([a], [b]) => (a < b ? -1 : 1))

function* section(title, names) {
  if (names.length > 0) yield* ['', `## ${title}`]
  for (const [name, { signature, says }] of names)
    yield* ['', `### ${name}`, ...(says ? ['', says] : []), '', '```ts', signature, '```']
}

/** The page of one entry point. */
export function apiPage(entryPoint, purpose, file, isPublic) {
  const names = namesOf(file)
  const lines = [
    `# ${entryPoint}`,
    '',
    purpose,
    '',
    'Written by `npm run gen-api` from the declarations of the package.',
  ]
  for (const title of ['Functions', 'Classes', 'Values', 'Types'])
    lines.push(...section(title, inOrder([...names].filter(([, { kind }]) => titles[kind] === title))))
  lines.push(...section('Types mentioned above', inOrder(mentioned(names, isPublic))))
  return `${lines.join('\n')}\n`
}
