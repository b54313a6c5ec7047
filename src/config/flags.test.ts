import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { z } from 'zod'
import { withinMinute } from '../../tests/support/in-time.ts'
import { type CommandFlag, distance, nearest, readFlags, SettingTable, settingSections } from './index.ts'

const schema = z.strictObject({
  name: z.string().default('x').describe('a text'),
  note: z.string().nullable().default(null).describe('a text or null'),
  on: z.boolean().default(false).describe('a switch'),
  steps: z.int().default(-1).describe('a whole number'),
  size: z
    .union([z.literal('native'), z.int().positive()])
    .default('native')
    .describe('a word or a number'),
  ddof: z
    .union([z.literal(0), z.literal(1)])
    .default(1)
    .describe('0 or 1'),
  parts: z
    .array(z.enum(['a', 'b', 'c']))
    .default(['a'])
    .describe('a list'),
  terms: z
    .array(z.strictObject({ w: z.number() }))
    .default([])
    .describe('a list of objects'),
  rl: z
    .strictObject({
      numGenerations: z.int().default(4).describe('K'),
      beta: z.number().nullable().default(0.04).describe('KL'),
      deep: z
        .strictObject({ mode: z.enum(['x', 'y']).default('x').describe('inner') })
        .prefault({})
        .describe('deeper'),
    })
    .prefault({})
    .describe('a group'),
})
const table = new SettingTable(schema, [{ name: 'kl_coef', path: 'rl.beta' }])
const own: CommandFlag[] = [
  { name: 'dry-run', doc: 'a switch' },
  { name: 'reward', value: 'FILE', many: true, doc: 'files' },
]
const read = (...argv: string[]) => readFlags(argv, table, own)
const folder = mkdtempSync(join(tmpdir(), 'roundtrip-flags-'))
after(() => rmSync(folder, { recursive: true, force: true }))

function recipe(name: string, text: string): string {
  writeFileSync(join(folder, name), text)
  return join(folder, name)
}

test('values are read by the type of the setting', () => {
  const cases: [string[], unknown][] = [
    [['--name', 'null'], { name: 'null' }],
    [['--name='], { name: '' }],
    [['--name', '-x'], { name: '-x' }],
    [['--name=--x'], { name: '--x' }],
    [['--note', 'null'], { note: null }],
    [['--note', 'nul'], { note: 'nul' }],
    [['--on'], { on: true }],
    [['--on', 'false'], { on: false }],
    [['--on', '--steps', '3'], { on: true, steps: 3 }],
    [['--steps', '-1'], { steps: -1 }],
    [['--steps=1e2'], { steps: 100 }],
    [['--size', '64'], { size: 64 }],
    [['--size', 'native'], { size: 'native' }],
    [['--ddof', '0'], { ddof: 0 }],
    [['--parts', 'a,c'], { parts: ['a', 'c'] }],
    [['--parts', '["b"]'], { parts: ['b'] }],
    [['--terms', '[{"w": 2}]'], { terms: [{ w: 2 }] }],
    [['--rl.beta', 'null'], { rl: { beta: null } }],
    [['--kl_coef', '0.5'], { rl: { beta: 0.5 } }],
    [['--rl.deep.mode', 'y', '--rl.numGenerations', '8'], { rl: { deep: { mode: 'y' }, numGenerations: 8 } }],
  ]
  for (const [argv, expected] of cases) assert.deepEqual(read(...argv).settings, expected, argv.join(' '))
})

test('values of another type are refused with what is expected', () => {
  assert.throws(() => read('--steps', 'many'), /--steps: expected whole number, got many/)
  assert.throws(() => read('--steps'), /--steps: expected whole number, got nothing/)
  assert.throws(() => read('--steps', '--on'), /--steps: expected whole number, got nothing/)
  assert.throws(() => read('--steps='), /--steps: expected whole number, got nothing/)
  assert.throws(() => read('--on=maybe'), /--on: expected true or false, got maybe/)
  assert.throws(() => read('--parts', 'a,d'), /--parts: expected list of: a, b, c, got a,d/)
  assert.throws(() => read('--rl.deep.mode', 'z'), /expected x, y, got z/)
  assert.throws(() => read('--reward'), /--reward: expected FILE, got nothing/)
  assert.throws(() => read('--dry-run=no'), /--dry-run: expected no value, got no/)
  assert.throws(() => read('word'), /expected a flag such as/)
})

test('an unknown name is an error that names the nearest', () => {
  assert.throws(() => read('--nane', 'x'), /did you mean --name\?/)
  assert.throws(() => read('--numGenerations', '8'), /did you mean --rl\.numGenerations\?/)
  assert.throws(() => read('--rl.num_generations', '8'), /did you mean --rl\.numGenerations\?/)
  assert.throws(() => read('--klcoef', '8'), /did you mean --kl_coef\?/)
  assert.throws(() => read('--dryrun'), /did you mean --dry-run\?/)
  assert.throws(() => read('--rl', '8'), /expected a known setting/)
})

test('later flags win over earlier ones, flags over recipes in any order, later recipes over earlier', () => {
  const one = recipe('one.yaml', 'steps: 1\nrl:\n  numGenerations: 2\n  beta: 0.1\n')
  const two = recipe('two.json', '{"rl": {"numGenerations": 3}, "rl.deep.mode": "y", "kl_coef": 0.2}')
  const given = read('--steps', '7', '--steps', '8', '--recipe', one, '--recipe', two)
  assert.deepEqual(given.settings, { steps: 8, rl: { numGenerations: 3, beta: 0.2, deep: { mode: 'y' } } })
  assert.deepEqual([...given.paths].sort(), ['rl.beta', 'rl.deep.mode', 'rl.numGenerations', 'steps'])
})

test("a command's own flags are kept apart, repeated ones in order", () => {
  const given = read('--reward', 'a.ts', '--dry-run', '--reward=b.ts')
  assert.deepEqual(given.settings, {})
  assert.deepEqual(Object.fromEntries(given.flags), { reward: ['a.ts', 'b.ts'], 'dry-run': ['true'] })
})

test('a recipe of 100,000 keys is refused by its size, because each key is compared with all others', () => {
  const keys = Array.from({ length: 100_000 }, (_, i) => `k${i}: 1\n`)
  const long = recipe('long.yaml', keys.join(''))
  const expected = /long\.yaml: expected a file of at most 131072 bytes, got \d+ bytes/
  assert.throws(() => withinMinute(() => read('--recipe', long)), expected)
})

test('recipes that are missing, broken or name unknown settings are reported with their path', () => {
  assert.throws(() => read('--recipe', join(folder, 'none.yaml')), /none\.yaml: recipe: expected a YAML or JSON file/)
  assert.throws(() => read('--recipe', folder), /recipe: expected a YAML or JSON file, got a folder$/)
  assert.throws(() => read('--recipe', recipe('bad.yaml', 'a: [1')), /bad\.yaml: recipe: expected YAML or JSON/)
  assert.throws(() => read('--recipe', recipe('list.yaml', '- 1')), /list\.yaml: recipe: expected settings by name/)
  const typo = recipe('typo.yaml', 'rl:\n  numGeneration: 2\n')
  assert.throws(() => read('--recipe', typo), /typo\.yaml: rl\.numGeneration: .*did you mean rl\.numGenerations\?/)
  assert.deepEqual(read('--recipe', recipe('empty.yaml', '# nothing\n')).settings, {})
})

test('a word that ends a name finds it, the shortest name first', () => {
  assert.equal(nearest('steps', ['dtype', 'epochs', 'saveSteps', 'maxSteps']), 'maxSteps')
  assert.equal(nearest('stpes', ['steps', 'maxSteps']), 'steps')
  assert.equal(nearest('top', ['stop', 'laptop']), 'stop')
  assert.equal(nearest('gpu', ['points.reward.iou', 'device', 'pull']), undefined, 'more than half would change')
  assert.equal(nearest('evla', ['eval', 'new']), 'eval')
  assert.equal(nearest('batch', ['batchSize', 'evalBatch']), 'batchSize')
  assert.equal(nearest('lr', ['lora.rank', 'optim.lrEnd', 'optim.learningRate']), 'optim.learningRate')
})

test('distance counts inserts, deletes, replacements and swaps', () => {
  assert.deepEqual(
    [distance('', 'abc'), distance('abc', 'abc'), distance('kitten', 'sitting'), distance('ab', 'ba')],
    [3, 0, 3, 1],
  )
  assert.equal(nearest('x', []), undefined)
})

test('every setting is in one section of the page', () => {
  const sections = settingSections(table)
  assert.deepEqual(
    sections.map((s) => s.group),
    ['', 'rl', 'rl.deep'],
  )
  assert.equal(sections.flatMap((s) => s.settings).length, table.settings.length)
})
