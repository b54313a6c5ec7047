// The numbers of "A worked example" in docs/method.md, computed by the functions that train.
import { type Mask, maskFromDense, maskIou } from '../../src/mask/index.ts'
import { GrpoConfig, groupAdvantages, grpoLoss } from '../../src/rl/index.ts'
import { tensor, tidy } from '../../src/tensor/index.ts'

/** A rectangle in an image of 10 x 10 pixels; both corners are inside. */
function rectangle(left: number, top: number, right: number, bottom: number): Mask {
  const inside = Uint8Array.from({ length: 100 }, (_, i) => {
    const [x, y] = [i % 10, Math.floor(i / 10)]
    return x >= left && x <= right && y >= top && y <= bottom ? 1 : 0
  })
  return maskFromDense(inside, 10, 10)
}

const region = rectangle(2, 2, 5, 6)

/** What the second model draws from each caption, and by how much an update has changed the log-probability of its tokens. */
const captions = [
  { text: 'the red cup on the left', drawn: rectangle(2, 2, 5, 5), tokens: 6, change: 0.3 },
  { text: 'a cup', drawn: rectangle(4, 2, 8, 6), tokens: 2, change: -0.1 },
  { text: 'the plate', drawn: rectangle(7, 7, 9, 9), tokens: 2, change: -0.3 },
  { text: 'the red cup', drawn: rectangle(3, 2, 5, 6), tokens: 3, change: 0.05 },
]

const K = captions.length
const T = Math.max(...captions.map((c) => c.tokens))
const config = GrpoConfig.parse({ numGenerations: K })

/** Log-probs [K, T] after `passes` updates; every token began at -1. */
function logps(passes: number): Float32Array {
  return Float32Array.from({ length: K * T }, (_, i) => -1 + passes * captions[Math.floor(i / T)]!.change)
}

function lossAfter(passes: number, advantages: Float64Array) {
  const rows = (data: Float32Array) => tensor(data, [K, T])
  const mask = Float32Array.from({ length: K * T }, (_, i) => (i % T < captions[Math.floor(i / T)]!.tokens ? 1 : 0))
  return tidy(() => {
    const input = { logps: rows(logps(passes)), oldLogps: rows(logps(0)), refLogps: rows(logps(0)), mask: rows(mask) }
    const result = grpoLoss({ ...input, advantages: tensor(Float32Array.from(advantages)) }, config)
    const first = (t: { array(): unknown }, width: number) =>
      Array.from({ length: K }, (_, k) => (t.array() as Float32Array)[k * width]!)
    return {
      loss: result.loss.item(),
      ratio: first(result.ratio, T),
      kl: first(result.klPerToken!, T),
      perToken: first(result.perTokenLoss, T),
    }
  })
}

const fixed = (value: number) => (Math.abs(value) < 5e-4 ? '0.000' : value.toFixed(3)).padStart(6)

/** The block of the page between the markers. */
export function workedExample(): string {
  const iou = captions.map((c) => maskIou(region, c.drawn))
  const { advantages, groupMean, groupStd } = groupAdvantages(iou, config)
  const one = lossAfter(0, advantages)
  const two = lossAfter(1, advantages)
  const lines = captions.map((c, k) => {
    const cells = [iou[k]!, advantages[k]!, two.ratio[k]!, two.kl[k]!, two.perToken[k]!].map(fixed).join('  ')
    return `${c.text.padEnd(24)} ${String(c.tokens).padStart(6)}  ${cells}`
  })
  return [
    '```text',
    'caption                  tokens     IoU       A     rho      k3   L_t',
    ...lines,
    '',
    `mean IoU ${fixed(groupMean[0]!).trim()}, std ${fixed(groupStd[0]!).trim()} (divided by K - 1)`,
    `loss on the first pass   ${fixed(one.loss).trim()}   (rho = 1, k3 = 0: minus the mean of A)`,
    `loss on the second pass  ${fixed(two.loss).trim()}   (mean over the four rows of the mean over their tokens)`,
    '```',
  ].join('\n')
}
