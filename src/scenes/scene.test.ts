import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { parseCaption } from '../../tests/support/parse-caption.ts'
import { sha256 } from '../core/index.ts'
import { maskArea, toDense } from '../mask/index.ts'
import { candidates, identifies, minimalAttributes, usedAttributes } from './describe.ts'
import { makeScene, planScene, sceneExample } from './scene.ts'
import { hasPosition, type SceneObject } from './world.ts'

const count = 600
const plans = Array.from({ length: count }, (_, i) => planScene(11, i))
const scenes = Array.from({ length: 60 }, (_, i) => makeScene(11, i))

function share(of: (i: number) => boolean): number {
  return plans.filter((_, i) => of(i)).length / count
}

/** Centre of mass of an object's pixels, as fractions, and how many there are. */
function pixelsOf(owner: Uint8Array, k: number, size: number): { x: number; y: number; area: number } {
  let [x, y, area] = [0, 0, 0]
  owner.forEach((value, at) => {
    if (value !== k + 1) return
    x += (at % size) + 0.5
    y += Math.floor(at / size) + 0.5
    area++
  })
  return { x: x / area / size, y: y / area / size, area }
}

describe('captions', () => {
  test('every caption, read back from its words, means the target and nothing else', () => {
    for (const { caption, objects, target } of plans)
      assert.deepEqual(candidates(parseCaption(caption)!, objects), [target], caption)
  })

  test('at least 30 % of the captions need two attributes or more', () => {
    const needTwo = share((i) => {
      const { description, objects, target } = plans[i]!
      const singles = usedAttributes(description).map((name) => ({ [name]: description[name] }))
      return !singles.some((single) => identifies(single, objects, target))
    })
    assert.ok(needTwo >= 0.3, `${needTwo}`)
    assert.equal(
      needTwo,
      share((i) => plans[i]!.minimalAttributes.length >= 2),
    )
  })

  test('no colour, shape, size or texture alone identifies the target in at least 30 % of the scenes', () => {
    const hard = share((i) => {
      const { objects, target } = plans[i]!
      const object = objects[target]!
      return (['colour', 'shape', 'size', 'texture'] as const).every(
        (name) => candidates({ [name]: object[name] }, objects).length > 1,
      )
    })
    assert.ok(hard >= 0.3, `${hard}`)
  })

  test('the wording varies: most captions are different, every attribute is used, lengths from 2 to 14 words', () => {
    assert.ok(new Set(plans.map((p) => p.caption)).size > 0.75 * count)
    for (const name of ['size', 'texture', 'colour', 'shape', 'position', 'relation'] as const) {
      const used = share((i) => plans[i]!.description[name] !== undefined)
      assert.ok(used > 0.15, `${name} ${used}`)
    }
    const lengths = plans.map((p) => p.caption.split(' ').length)
    assert.ok(Math.min(...lengths) >= 2 && Math.max(...lengths) <= 14)
  })
})

describe('objects', () => {
  test('a scene has 2 to 4 objects, all counts occur, and a distractor shares colour or shape with the target', () => {
    const counts = new Set(plans.map((p) => p.objects.length))
    assert.deepEqual([...counts].sort(), [2, 3, 4])
    for (const { objects, target } of plans) {
      const wanted = objects[target]!
      const shares = (o: SceneObject) => o.colour === wanted.colour || o.shape === wanted.shape
      assert.ok(objects.some((o, i) => i !== target && shares(o)))
    }
  })

  test('the target is not always in the same place of the list', () => {
    for (const place of [0, 1, 2, 3]) assert.ok(plans.some((p) => p.target === place))
  })

  test('no two objects touch and none leaves the image', () => {
    for (const { objects } of plans) {
      objects.forEach((a, i) => {
        assert.ok(Math.min(a.x, a.y, 1 - a.x, 1 - a.y) > a.radius)
        for (const b of objects.slice(i + 1)) assert.ok(Math.hypot(a.x - b.x, a.y - b.y) > a.radius + b.radius)
      })
    }
  })
})

describe('pixels', () => {
  test('each object has its own pixels around its centre, and the mask is the target', () => {
    for (const { objects, owner, mask, target } of scenes) {
      objects.forEach((object, k) => {
        const found = pixelsOf(owner, k, 112)
        assert.ok(Math.abs(found.x - object.x) < 0.01 && Math.abs(found.y - object.y) < 0.01)
        assert.ok(found.area > 150)
      })
      assert.deepEqual(
        mask,
        owner.map((k) => Number(k === target + 1)),
      )
    }
  })

  test('areas follow the closed forms of the shapes', () => {
    const perSquaredRadius = {
      circle: Math.PI * 0.81,
      square: 1.96,
      triangle: 0.75 * Math.sqrt(3),
      cross: 4 * 0.32 * (2 * 0.93 - 0.32),
      star: 5 * 0.5 * Math.sin(Math.PI / 5),
    }
    for (let i = 0; i < 4; i++) {
      const { objects, owner } = makeScene(5, i, { size: 320 })
      objects.forEach((object, k) => {
        const expected = perSquaredRadius[object.shape] * (object.radius * 320) ** 2
        const { area } = pixelsOf(owner, k, 320)
        assert.ok(Math.abs(area / expected - 1) < 0.03, `${object.shape} ${area} ${expected}`)
      })
    }
  })

  test('place words agree with the pixels', () => {
    for (const { objects, owner } of scenes) {
      objects.forEach((object, k) => {
        const { x, y } = pixelsOf(owner, k, 112)
        assert.equal(hasPosition(object, 'left'), x < 0.41)
        assert.equal(hasPosition(object, 'bottom'), y > 0.59)
      })
    }
  })

  test('every target covers a point of the 8 x 8 region grid', () => {
    for (const { mask } of scenes) {
      const cells = Array.from({ length: 64 }, (_, c) => mask[Math.floor(c / 8) * 14 * 112 + (c % 8) * 14]!)
      assert.ok(cells.includes(1))
    }
  })

  test('an object shows its colour: the plain red ones are red', () => {
    let seen = 0
    for (const { objects, owner, image } of scenes) {
      objects.forEach((object, k) => {
        if (object.colour !== 'red' || object.texture !== 'plain') return
        const at = owner.indexOf(k + 1) * 3
        assert.ok(image.data[at]! > 180 && image.data[at + 1]! < 70 && image.data[at + 2]! < 70)
        seen++
      })
    }
    assert.ok(seen > 0)
  })
})

describe('makeScene', () => {
  test('the same seed and index give the same bytes, another index or seed others', () => {
    const hash = (seed: number, index: number) => {
      const scene = makeScene(seed, index)
      return sha256(scene.image.data) + sha256(scene.mask) + scene.caption
    }
    assert.equal(hash(3, 7), hash(3, 7))
    assert.notEqual(hash(3, 7), hash(3, 8))
    assert.notEqual(hash(3, 7), hash(4, 7))
  })

  test('objects and caption do not depend on the image size', () => {
    const [small, large] = [makeScene(2, 5, { size: 64 }), makeScene(2, 5, { size: 224 })]
    assert.equal(small.caption, large.caption)
    assert.deepEqual(small.objects, large.objects)
    assert.equal(large.image.data.length, 224 * 224 * 3)
  })

  test('the number of objects can be set and bad options name the field', () => {
    for (let i = 0; i < 20; i++) assert.equal(planScene(1, i, { minObjects: 3, maxObjects: 3 }).objects.length, 3)
    assert.throws(() => makeScene(0, 0, { size: 8 }), /scenes: size/)
    assert.throws(() => makeScene(0, 0, { minObjects: 5 }), /minObjects/)
    assert.throws(() => makeScene(0, 0, { minObjects: 3, maxObjects: 2 }), /maxObjects/)
  })

  test('as an example it keeps id, caption and the exact mask', () => {
    const scene = makeScene(2, 9)
    const example = sceneExample(scene)
    assert.equal(example.id, 'scene-2-9')
    assert.deepEqual(Array.from(toDense(example.mask)), Array.from(scene.mask))
    assert.equal(
      maskArea(example.mask),
      scene.mask.reduce((a, b) => a + b, 0),
    )
  })
})

describe('descriptions', () => {
  const at = (x: number, y: number, looks: Partial<SceneObject> = {}): SceneObject => ({
    colour: 'red',
    shape: 'circle',
    size: 'small',
    texture: 'plain',
    radius: 0.12,
    x,
    y,
    ...looks,
  })
  const objects = [at(0.2, 0.2), at(0.8, 0.2, { shape: 'square' }), at(0.2, 0.8, { colour: 'blue' })]

  test('two shared attributes need each other', () => {
    assert.equal(identifies({ colour: 'red' }, objects, 0), false)
    assert.equal(identifies({ shape: 'circle' }, objects, 0), false)
    assert.equal(identifies({ colour: 'red', shape: 'circle' }, objects, 0), true)
    assert.deepEqual(minimalAttributes({ size: 'small', colour: 'red', shape: 'circle' }, objects, 0), [
      'colour',
      'shape',
    ])
  })

  test('a relation needs a reference that is itself clear', () => {
    assert.equal(identifies({ relation: { kind: 'above', of: { colour: 'blue' } } }, objects, 0), false)
    assert.equal(identifies({ shape: 'circle', relation: { kind: 'above', of: { colour: 'blue' } } }, objects, 0), true)
    assert.equal(
      identifies({ shape: 'square', relation: { kind: 'right of', of: { colour: 'red' } } }, objects, 1),
      false,
    )
    assert.equal(
      identifies(
        { shape: 'square', relation: { kind: 'right of', of: { colour: 'red', shape: 'circle' } } },
        objects,
        1,
      ),
      true,
    )
  })
})
