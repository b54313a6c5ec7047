import assert from 'node:assert/strict'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { writeBackground, writeEmoji, writeStamps } from '../../../tests/support/cutouts.ts'
import { sha256 } from '../../core/index.ts'
import { maskArea, toDense } from '../../mask/index.ts'
import { couldMean } from '../../scenes/composed/cutouts.ts'
import { looksOf, sayLooks } from '../../scenes/composed/looks.ts'
import { captionOf, readStamp } from '../../scenes/composed/stamps.ts'
import { DataConfig } from '../config.ts'
import type { Example, Source } from '../example.ts'
import { splitIndices } from '../order.ts'
import { openSource } from './open.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-composed-'))
const cache = join(folder, 'cache')
const root = join(folder, 'stamps')

before(async () => {
  process.env.ROUNDTRIP_CACHE = cache
  process.env.ROUNDTRIP_STAMPS = root
  await writeStamps(root)
  await writeEmoji(cache)
})
after(() => rmSync(folder, { recursive: true, force: true }))

const open = async (path: string) => await openSource(path)

async function all(source: Source): Promise<Example[]> {
  return await Promise.all(Array.from({ length: source.length }, (_, i) => source.get(i)))
}

const objectsOf = ({ meta }: Pick<Example, 'meta'>) => meta.objects as { file: string; caption: string }[]

describe('objects', () => {
  test('stamps: pictures with a sentence, each once, without letters', async () => {
    const source = await open('stamps:45:1:64')
    const files = new Set((await all(source)).flatMap((example) => objectsOf(example).map(({ file }) => file)))
    assert.equal(files.size, 30)
    assert.match(source.format, /^30 objects of stamps, composed 64 x 64, seed 1$/)
    assert.ok(![...files].some((file) => /symbols|silent/.test(file)))
    assert.equal([...files].filter((file) => /copy|thing0\./.test(file)).length, 1, 'the copy is the same object')
  })

  test('`:photos` takes photographs only', async () => {
    const examples = await all(await open('stamps:20:2:64:photos'))
    const files = new Set(examples.flatMap((example) => objectsOf(example).map(({ file }) => file)))
    assert.deepEqual(
      [...files].filter((file) => !/animal\d/.test(file)),
      [],
    )
    assert.equal(files.size, 14)
  })

  test('emoji: objects of the allowed categories with their names', async () => {
    const examples = await all(await open('emoji:24:1:64'))
    const captions = new Set(examples.flatMap((example) => objectsOf(example).map(({ caption }) => caption)))
    assert.equal(captions.size, 17)
    assert.ok(captions.has('the object number3') && !captions.has('the france flag'))
  })

  test('captions name the object: first clause, no foreign text', () => {
    assert.equal(captionOf('A spiny lobster, from the Hawaiian islands.', 'lobster'), 'the spiny lobster')
    assert.equal(captionOf('An owl.', 'owl'), 'the owl')
    assert.equal(captionOf('A “Fuji” apple.', 'apple_fuji'), 'the Fuji apple')
    assert.equal(captionOf('Venus—the second planet in the solar system!', '2_venus'), 'Venus')
    assert.equal(captionOf('A candy cane is a traditional treat.', 'cane'), 'the candy cane')
    assert.equal(captionOf('We remember those who have died.', 'final-roll-call'), 'the final roll call')
    assert.equal(captionOf('A dumper. It carries its load in front.', 'dumper'), 'the dumper')
  })

  const debian = '/usr/share/tuxpaint/stamps'
  const examples = {
    true: ['animals/birds/owl', 'food/fruit/kiwi', 'vehicles/emergency/firetruck', 'plants/flowers/daffodil'],
    false: ['food/pizza', 'seasonal/christmas/Santa', 'clothes/hats/tophat', 'animals/mammals/cats/cartoon/lion'],
  }
  test('photographs and drawings are distinguished, on the installed package if there is one', async () => {
    const installed = existsSync(debian)
    const files = installed ? examples : { true: ['animals/birds/animal17'], false: ['clothes/hats/thing2'] }
    for (const [photo, names] of Object.entries(files))
      for (const name of names)
        assert.equal(`${(await readStamp(installed ? debian : root, `${name}.png`)).photo}`, photo, name)
  })
})

describe('pictures', () => {
  test('the same seed gives the same records in another cache, another seed does not', async () => {
    const read = async (path: string) =>
      (await all(await open(path))).map(({ id, image, mask, caption, meta }) => ({
        id,
        image: Buffer.from(image.data),
        mask,
        caption,
        meta,
      }))
    const first = await read('stamps:6:3:96')
    const stored = await read('stamps:6:3:96')
    process.env.ROUNDTRIP_CACHE = join(folder, 'cache-2')
    const again = await read('stamps:6:3:96')
    process.env.ROUNDTRIP_CACHE = cache
    assert.deepEqual(stored, first)
    assert.deepEqual(again, first)
    const other = await read('stamps:6:4:96')
    assert.ok(other.every(({ image }, i) => !image.equals(first[i]!.image)))
    const more = await read('stamps:9:3:96')
    assert.deepEqual(more.slice(0, 6), first, 'a longer set begins with the shorter one')
    const pixels = sha256(Buffer.concat(first.map(({ image }) => image)))
    assert.equal(pixels.slice(0, 16), 'c777daf83dd8d509', 'other pixels need another composerVersion')
  })

  test('`:described` says size, colour and place instead of the name, and changes nothing else', async () => {
    const [plain, described] = [await open('stamps:45:1:64:photos'), await open('stamps:45:1:64:photos:described')]
    assert.notEqual(described.fingerprint, plain.fingerprint)
    const names = await all(plain)
    const captions = new Set<string>()
    for (const [i, { caption, image, mask, ...rest }] of (await all(described)).entries()) {
      const { caption: _, image: __, mask: ___, ...same } = names[i]!
      assert.deepEqual(rest, same)
      assert.equal(caption, sayLooks(looksOf(image, mask)))
      captions.add(caption)
    }
    assert.ok(captions.size >= 6, `${[...captions]}`)
  })

  test('composed pictures are stored once and read from there', async () => {
    const source = await open('emoji:3:8:64')
    await all(source)
    const folders = readdirSync(join(cache, 'composed'))
    const stored = folders.map((name) => join(cache, 'composed', name)).filter((f) => readdirSync(f).length === 6)
    assert.equal(stored.length, 1)
    const facts = join(stored[0]!, '1.json')
    const found = JSON.parse(readFileSync(facts, 'utf8'))
    writeFileSync(facts, JSON.stringify({ ...found, caption: 'stored' }))
    assert.equal((await source.get(1)).caption, 'stored')
    truncateSync(join(stored[0]!, '1.png'), 100)
    assert.equal((await source.get(1)).caption, found.caption, 'a picture that was cut off is composed again')
    assert.equal((await source.get(1)).caption, found.caption)
  })

  test('a picture that cannot be stored leaves no unfinished file', async () => {
    const before = new Set(readdirSync(join(cache, 'composed')))
    const source = await open('emoji:2:9:64')
    await source.get(0)
    const name = readdirSync(join(cache, 'composed')).find((other) => !before.has(other))!
    const store = join(cache, 'composed', name)
    mkdirSync(join(store, '1.png'))
    assert.equal((await source.get(1)).image.width, 64)
    assert.deepEqual(readdirSync(store).sort(), ['0.json', '0.png', '1.png'])
  })

  test('a cache that cannot be written costs no record', async () => {
    const file = join(folder, 'not-a-folder')
    writeFileSync(file, '')
    process.env.ROUNDTRIP_CACHE = file
    try {
      assert.equal((await (await open('stamps:2:5:64')).get(1)).image.width, 64)
    } finally {
      process.env.ROUNDTRIP_CACHE = cache
    }
  })

  /** Drawings of the test have one colour each: a pixel of exactly that colour is a visible pixel of that object. */
  test('the mask is the visible part of the target: no pixel of another object is inside, none of the target is missing', async () => {
    const examples = (await all(await open('emoji:24:2:160'))) as Example[]
    let occluded = 0
    for (const { image, mask, meta, id } of examples) {
      const inside = toDense(mask)
      const number = (caption: string) => Number(/\d+/.exec(caption)![0])
      const objects = (meta.objects as { caption: string }[]).map(({ caption }) => number(caption))
      const key = (i: number) => ((8 * (i % 31)) << 16) | ((8 * ((i * 7) % 31)) << 8) | (8 * ((i * 13) % 31))
      const colours = new Map(objects.map((n, k) => [key(n), k]))
      const counts = objects.map(() => ({ inside: 0, outside: 0 }))
      for (let i = 0; i < inside.length; i++) {
        const colour = (image.data[i * 3]! << 16) | (image.data[i * 3 + 1]! << 8) | image.data[i * 3 + 2]!
        const k = colours.get(colour)
        if (k !== undefined) counts[k]![inside[i] ? 'inside' : 'outside']++
      }
      const byChance = 4 // pixels of the background that happen to have an object's colour
      assert.ok(counts[0]!.outside <= byChance, `${id}: ${counts[0]!.outside} pixels of the target are outside`)
      assert.ok(counts[0]!.inside > 0.7 * maskArea(mask), `${id}: ${counts[0]!.inside} of ${maskArea(mask)}`)
      for (const other of counts.slice(1))
        assert.ok(other.inside <= byChance, `${id}: ${other.inside} pixels of a distractor are inside`)
      assert.ok(objects.length >= 3 && new Set(objects).size === objects.length, `${id}: ${objects}`)
      const box = maskBoxFill(inside, image.width)
      if (box < 0.7) occluded++ // a whole ellipse fills 0.785 of its box
    }
    assert.ok(occluded >= 3, `${occluded} of ${examples.length} targets are partly covered`)
  })

  test('photographs are backgrounds if npm has installed some, and then the data are other data', async () => {
    const before = await open('stamps:1:1:64')
    await writeBackground(cache)
    const withPhotos = await open('stamps:1:1:64')
    assert.notEqual(withPhotos.fingerprint, before.fingerprint)
    assert.ok(withPhotos.schema.some((line) => line.startsWith('backgrounds: 1 photographs')))
    rmSync(join(cache, 'node_modules', '@stdlib'), { recursive: true })
  })
})

function boxOf(inside: Uint8Array, width: number) {
  let [left, right, top, bottom, area] = [width, -1, width, -1, 0]
  inside.forEach((value, i) => {
    if (!value) return
    area++
    left = Math.min(left, i % width)
    right = Math.max(right, i % width)
    top = Math.min(top, Math.floor(i / width))
    bottom = Math.max(bottom, Math.floor(i / width))
  })
  return { left, right, top, bottom, area }
}

function maskBoxFill(inside: Uint8Array, width: number): number {
  const { left, right, top, bottom, area } = boxOf(inside, width)
  return area / ((right - left + 1) * (bottom - top + 1))
}

describe('the held-out part', () => {
  for (const path of ['stamps:45:1:64', 'stamps:20:2:64:photos', 'emoji:24:1:64'])
    test(`${path}: no object of a held-out picture is in a training picture, whatever the share`, async () => {
      const source = await open(path)
      assert.deepEqual(source.warnings, [])
      const regions = await Promise.all(Array.from({ length: source.length }, (_, i) => source.region(i)))
      let divided = 0
      for (let evalFraction = 0.02; evalFraction < 1; evalFraction += 0.02) {
        const files = (split: 'train' | 'eval') => {
          const indices = splitIndices(source, DataConfig.parse({ split, evalFraction }), true)
          return new Set([...indices].flatMap((i) => objectsOf(regions[i]!).map(({ file }) => file)))
        }
        const [trained, held] = [files('train'), files('eval')]
        if (trained.size > 0 && held.size > 0) divided++
        assert.deepEqual(
          [...held].filter((file) => trained.has(file)),
          [],
          `evalFraction ${evalFraction}`,
        )
      }
      assert.ok(divided >= 2, 'some shares divide the objects')
    })

  test('an object is in the same group for every seed and with `:photos`', async () => {
    const groups = new Map<string, string>()
    for (const path of ['stamps:45:1:64', 'stamps:30:9:64', 'stamps:20:2:64:photos'])
      for (const example of await all(await open(path)))
        for (const { file } of objectsOf(example)) {
          const group = example.meta.group as string
          assert.equal(groups.get(file) ?? group, group, file)
          groups.set(file, group)
        }
    assert.equal(groups.size, 30)
  })

  test('distractors are of the same kind and never fit the caption', async () => {
    for (const example of await all(await open('stamps:45:1:64'))) {
      const [target, ...others] = objectsOf(example)
      assert.ok(others.length >= 2)
      const kind = (file: string) => file.split('/')[0]
      assert.ok(others.every(({ file }) => kind(file) === kind(target!.file)))
      assert.ok(others.every(({ caption }) => caption !== target!.caption))
    }
  })

  test('a caption could mean an object whose caption has all its words', () => {
    const cutout = (caption: string) => ({ file: caption, kind: '', caption })
    assert.ok(couldMean(cutout('the flower'), cutout('a flower covered in dew drops')))
    assert.ok(!couldMean(cutout('the red flower'), cutout('the flower')))
    assert.ok(!couldMean(cutout('the cat'), cutout('the catfish')))
  })

  test('a split by place is rejected: it would not be by object', async () => {
    await assert.rejects(openSource('stamps:4', { splitBy: 'place' }), /data\.splitBy: expected content/)
  })
})

describe('what is missing is named', () => {
  test('a wrong spelling shows the right one', async () => {
    await assert.rejects(open('stamps:x'), /stamps:COUNT\[:SEED\[:SIZE\]\]\[:photos\]/)
    await assert.rejects(open('stamps:4:1:8'), /SIZE of at least 64/)
    await assert.rejects(open('emoji:4:1:photos'), /emoji:COUNT\[:SEED\[:SIZE\]\]/)
    await assert.rejects(open('emoji:0'), /at least one/)
  })

  test('a missing package names the one command that installs it', async () => {
    process.env.ROUNDTRIP_STAMPS = join(folder, 'nowhere')
    process.env.ROUNDTRIP_CACHE = join(folder, 'empty')
    try {
      await assert.rejects(open('stamps:4'), /apt install tuxpaint-stamps-default/)
      await assert.rejects(
        open('emoji:4'),
        /npm install emoji-datasource-google@16\.0\.0 @lobehub\/fluent-emoji-3d@1\.1\.0/,
      )
    } finally {
      process.env.ROUNDTRIP_STAMPS = root
      process.env.ROUNDTRIP_CACHE = cache
    }
  })
})
