// What can be said about any object from its pixels and its mask alone, drawn or photographed: its main colour, its size, its place.
import type { RgbImage } from '../../image/index.ts'
import { type Mask, maskArea, maskBox, toDense } from '../../mask/index.ts'
import { positionPhrases } from '../wording.ts'
import { type MainColour, mainColours, type Place, type Position, positionAt, type Size } from '../world.ts'

export interface Looks extends Place {
  colour: MainColour
  size: Size
  position: Position
}

/** Share of the picture from which on an object is large: about half of the composed ones. */
const largeArea = 0.04

export function looksOf({ width, data }: RgbImage, mask: Mask): Looks {
  const votes = new Map<MainColour, number>(mainColours.map((colour) => [colour, 0]))
  toDense(mask).forEach((inside, i) => {
    if (!inside) return
    const colour = colourOf(data[3 * i]!, data[3 * i + 1]!, data[3 * i + 2]!)
    votes.set(colour, votes.get(colour)! + 1)
  })
  const [left, top, w, h] = maskBox(mask)
  const middle = { x: (left + w / 2) / width, y: (top + h / 2) / mask.height }
  return {
    ...middle,
    colour: [...votes].reduce((best, next) => (next[1] > best[1] ? next : best))[0],
    size: maskArea(mask) >= largeArea * width * mask.height ? 'large' : 'small',
    position: positionAt(middle),
  }
}

/** The hue in degrees at which a name ends, upwards. */
const hues = { 14: 'red', 42: 'orange', 68: 'yellow', 165: 'green', 255: 'blue', 345: 'purple', 361: 'red' } as const
const hueEnds = Object.entries(hues) // once, not for every pixel

/** The name of a colour; dark or pale orange is brown. */
function colourOf(r: number, g: number, b: number): MainColour {
  const [high, low] = [Math.max(r, g, b), Math.min(r, g, b)]
  if (high < 60) return 'black'
  if (high - low < 0.16 * high) return high > 190 ? 'white' : high > 90 ? 'grey' : 'black'
  const sector =
    high === r ? (g - b) / (high - low) : high === g ? 2 + (b - r) / (high - low) : 4 + (r - g) / (high - low)
  const hue = (60 * sector + 360) % 360
  const [, colour] = hueEnds.find(([end]) => hue < Number(end))!
  const dull = high < 150 || high - low < 0.5 * high
  return dull && (colour === 'orange' || (colour === 'yellow' && hue < 52) || (colour === 'red' && hue < 180))
    ? 'brown'
    : colour
}

/** Words for some of the looks: `the large brown object on the left`. */
export function sayLooks({ size, colour, position }: Partial<Looks>): string {
  return ['the', size, colour, 'object', position && positionPhrases(position)[0]].filter(Boolean).join(' ')
}
