import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { BadRecord, type Example, openLoader, openSource, type Source } from '../data/index.ts'
import { noGrad } from '../tensor/index.ts'
import { chooseRecords } from './choose-records.ts'

const folder = mkdtempSync(join(tmpdir(), 'chosen-'))
after(() => rmSync(folder, { recursive: true }))
noGrad(() => undefined) // the engine is found in the user's cache folder, the index in one of our own
process.env.ROUNDTRIP_CACHE = join(folder, 'cache')

test('records are checked once, again when a file they were judged by changes, and the loader reads the chosen ones alone', async () => {
  const file = join(folder, 'judge.bin')
  writeFileSync(file, 'first')
  const source = await openSource('neighbours:6')
  const part = Uint32Array.of(1, 2, 4, 5)
  const looked: string[] = []
  const chooser = {
    files: [file],
    settings: '',
    look: ({ id }: Example) => [looked.push(id), 0.5],
    choose: (numbers: readonly (readonly number[] | null)[]) => {
      assert.deepEqual(
        numbers.map((row) => row?.[1]),
        [0.5, 0.5, 0.5, 0.5],
      )
      return { kept: [0, 3], summary: 'two of four' }
    },
  }
  const first = await chooseRecords(source, part, chooser)
  assert.deepEqual([[...first.only], first.summary], [[1, 5], 'two of four'])
  assert.deepEqual(await chooseRecords(source, part, chooser), first)
  assert.equal(looked.length, 4, 'the second time from the cache')
  writeFileSync(file, 'another one')
  await chooseRecords(source, part, chooser)
  assert.equal(looked.length, 8)
  await chooseRecords(source, part, { ...chooser, settings: 'others' })
  assert.equal(looked.length, 12, 'other settings judge otherwise')
  await chooseRecords(source, Uint32Array.of(0, 1, 2, 3), chooser)
  assert.equal(looked.length, 16, 'as many other records have their own numbers')
  const loader = openLoader(source, { workers: 0, shuffle: false }, undefined, null, { only: first.only })
  const ids: string[] = []
  for await (const { id } of loader) ids.push(id)
  assert.deepEqual([ids, loader.epochLength], [['points-0-1', 'points-0-5'], 2])
  await loader.close()
  await source.close()
})

test('another source is checked anew, and a record that cannot be read is null wherever it is', async () => {
  const file = join(folder, 'judge-2.bin')
  writeFileSync(file, 'first')
  const rows: unknown[] = []
  const chooser = {
    files: [file],
    settings: '',
    look: ({ id }: Example) => [Number(id.split('-').at(-1)), id.endsWith('2') ? Number.NaN : 1],
    choose: (numbers: readonly (readonly number[] | null)[]) => {
      rows.push(numbers)
      return { kept: [], summary: '' }
    },
  }
  const part = Uint32Array.of(0, 1, 2)
  for (const name of ['neighbours:6', 'neighbours:7']) {
    const source = await openSource(name)
    const isBad = name.endsWith('7')
    const bad = () =>
      Promise.reject(new BadRecord('image-unreadable', { where: 'x', expected: 'an image', got: 'none' }))
    const get = (i: number) => (isBad && i === 0 ? bad() : source.get(i))
    await chooseRecords({ ...source, fingerprint: source.fingerprint, name, get } as unknown as Source, part, chooser)
    await source.close()
  }
  assert.deepEqual(rows, [
    [[0, 1], [1, 1], null],
    [null, [1, 1], null],
  ])
})
