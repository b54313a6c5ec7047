// Checks the structure of src/. A room imports only rooms of lower rows, through their index.ts; files have no import cycles.
// Files and rooms have a maximum size. The method (src/rl) knows no model and no file, and only src/models names model families.
// The names of the two loops are only in their task, and docs/architecture.md lists the rooms with their rows.
// `check-rooms.mjs FOLDER` checks another tree.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { importCycles } from './lib/import-cycles.mjs'

/** The rooms of each row, the lowest first. */
const rooms = [
  ...[
    'core',
    'config engine',
    'tensor',
    'nn kernels text image mask',
    'optim scenes checkpoint distributed',
    'llm sam',
  ],
  ...['data models rewards tracking rl', 'tasks dashboard benchmarks', 'run', 'host verify', 'cli', 'public'],
]
const rows = Object.fromEntries(rooms.flatMap((names, row) => names.split(' ').map((room) => [room, row])))
const root = resolve(process.argv[2] ?? join(dirname(fileURLToPath(import.meta.url)), '..'))
const src = join(root, 'src')
const problems = []

function* files(folder) {
  for (const entry of readdirSync(folder)) {
    const path = join(folder, entry)
    if (statSync(path).isDirectory()) yield* files(path)
    else if (/\.(ts|tsx|cc|cu|h)$/.test(path)) yield path
  }
}

/** Lower rooms that a room must not import all the same: the method knows no file and no model. */
const forbidden = { rl: ['llm', 'models', 'data', 'checkpoint', 'tracking'] }
/** Rooms that may name a family of models in code; comments and strings may do so everywhere. */
const namesFamilies = ['llm', 'sam', 'models', 'verify', 'text', 'image', 'nn', 'data']
/** Places that may name the two loops: their task and the flags of the Python prototypes. */
const namesLoops = ['tasks/cycle/', 'cli/basic-settings.ts', 'cli/prototype-flags.ts']
const withoutWords = (text) =>
  text.replace(/\/\*[\s\S]*?\*\/|\/\/.*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g, '')

const roomOf = (path) => relative(src, path).split('/')[0]

function checkSize(path, text) {
  const lines = text.split('\n').length
  const limit = path.endsWith('.test.ts') ? 600 : 350
  if (lines > limit + 1 && !path.endsWith('.gen.ts'))
    problems.push(`${relative(root, path)}: ${lines - 1} lines, at most ${limit}`)
}

function checkNames(path, text) {
  const family = /\w*(Sa2VA|Qwen|InternV)\w*/.exec(namesFamilies.includes(roomOf(path)) ? '' : withoutWords(text))
  if (family) problems.push(`${relative(root, path)} names ${family[0]}: ask for it through models/family.ts`)
  const loop = namesLoops.some((place) => relative(src, path).startsWith(place)) ? null : /loop[12]/.exec(text)
  if (loop) problems.push(`${relative(root, path)} names ${loop[0]}: its task alone knows it, src/tasks/cycle`)
}

/** Rooms that must not name a task: a new task is one folder of `tasks` and one line there. */
const knowsNoTask = ['run', 'rewards', 'rl']
const tasks = join(src, 'tasks')
const taskNames = existsSync(tasks)
  ? readdirSync(tasks).filter((name) => statSync(join(tasks, name)).isDirectory())
  : []

function checkTasks(path, text) {
  if (!knowsNoTask.includes(roomOf(path))) return
  for (const name of taskNames) {
    const capital = `${name[0].toUpperCase()}${name.slice(1)}`
    const found = new RegExp(`\\w*${capital}\\w*|\\b${name}[A-Z]\\w*`).exec(withoutWords(text))
    if (found) problems.push(`${relative(root, path)} names ${found[0]}: ask for it through tasks/kind.ts`)
  }
}

function check(path, text) {
  const here = roomOf(path)
  checkSize(path, text)
  if (!(here in rows)) problems.push(`${relative(root, path)}: room ${here} has no row in check-rooms`)
  if (!path.endsWith('.test.ts')) {
    checkNames(path, text)
    checkTasks(path, text)
  }
  for (const [, target] of text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)) {
    const to = resolve(dirname(path), target)
    if (relative(src, to).startsWith('..')) continue
    const there = roomOf(to)
    if (there === here) continue
    if (there === 'verify' && path.endsWith('.test.ts')) continue // tests compare with golden data as verify does
    const where = `${relative(root, path)} imports ${target}`
    if (rows[there] === undefined || rows[there] >= rows[here] || forbidden[here]?.includes(there))
      problems.push(`${where}: ${here} may not use ${there}`)
    const isIndex = relative(src, to).split('/').length === 2 && to.endsWith('/index.ts')
    if (!isIndex && !path.endsWith('.test.ts')) problems.push(`${where}: import the room's index.ts`)
  }
}

/** Lines of a room without tests and generated files. */
const maxLines = (room) => (room === 'models' ? 5600 : 7000)
const linesOf = (text) => text.split('\n').length - 1

function checkRoomSizes(texts) {
  const sizes = {}
  for (const [path, text] of texts)
    if (!/\.(test|gen)\.tsx?$/.test(path)) sizes[roomOf(path)] = (sizes[roomOf(path)] ?? 0) + linesOf(text)
  for (const [room, lines] of Object.entries(sizes))
    if (lines > maxLines(room)) problems.push(`src/${room}: ${lines} lines without tests, at most ${maxLines(room)}`)
}

/** The tree of the architecture page lists exactly the rooms, each with its row. */
function checkPage(page) {
  const tree = /```text\n([\s\S]*?)```/.exec(page)?.[1] ?? ''
  const listed = new Map(
    [...tree.matchAll(/(?:^| {2})([a-z]+)\/ +(\d+) {2}/gm)].map(([, room, row]) => [room, Number(row)]),
  )
  for (const [room, row] of Object.entries(rows))
    if (listed.get(room) !== row)
      problems.push(`docs/architecture.md: expected ${room}/ with row ${row}, got ${listed.get(room) ?? 'nothing'}`)
  for (const room of Object.keys(rows))
    if (!existsSync(join(src, room))) problems.push(`room ${room} of check-rooms does not exist`)
  for (const room of listed.keys())
    if (!(room in rows)) problems.push(`docs/architecture.md lists ${room}/, which is not a room`)
}

const texts = new Map([...files(src)].map((path) => [path, readFileSync(path, 'utf8')]))
for (const [path, text] of texts) check(path, text)
for (const cycle of importCycles(texts, root)) problems.push(`import cycle: ${cycle}`)
checkRoomSizes(texts)
const page = join(root, 'docs', 'architecture.md')
if (existsSync(page)) checkPage(readFileSync(page, 'utf8'))
const native = join(root, 'native')
if (existsSync(native)) for (const path of files(native)) checkSize(path, readFileSync(path, 'utf8'))
for (const problem of problems) console.error(problem)
if (problems.length > 0) process.exit(1)
console.log('rooms: imports point down')
