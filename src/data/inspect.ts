import { spellControls } from '../core/index.ts'
import { maskArea, maskBox } from '../mask/index.ts'
import { BadRecord, type Example, type Reason, type Source } from './example.ts'
import { shuffleInPlace } from './order.ts'

interface Histogram {
  title: string
  /** Rows: label and count. */
  bins: { label: string; count: number }[]
}

type FirstRecord = Pick<Example, 'id' | 'caption' | 'category'> & { image: string; mask: string }

export interface Inspection extends Pick<Source, 'name' | 'format' | 'schema' | 'warnings' | 'leftOut'> {
  records: number
  first: FirstRecord[]
  /** Records that were decoded to count the unusable ones. */
  checked: number
  rejects: Partial<Record<Reason, { count: number; example: string }>>
  histograms: Histogram[]
}

interface InspectOptions {
  /** Records to decode; all when there are fewer. */
  sample?: number
  onProgress?: (done: number, total: number) => void
}

/** Decodes the first records and a random sample as training does. */
export async function inspectSource(source: Source, options: InspectOptions = {}): Promise<Inspection> {
  const { sample = 500 } = options
  const order = Uint32Array.from({ length: source.length }, (_, i) => i)
  if (sample < source.length) shuffleInPlace(order, 0, 0)
  const checked = Math.min(sample, source.length)
  const rejects: Inspection['rejects'] = {}
  for (const bad of source.broken) countReject(rejects, bad)
  const sizes = { side: [] as number[], share: [] as number[], words: [] as number[] }
  for (let i = 0; i < checked; i++) {
    const example = await tryGet(source, order[i]!, rejects)
    if (example) measure(example, sizes)
    options.onProgress?.(i + 1, checked)
  }
  const { name, format, length: records, schema, warnings, leftOut } = source
  const histograms = [
    histogram('longer side of the image (px)', sizes.side, [0, 256, 512, 768, 1024, 1536, 2048, 4096]),
    histogram('share of the image inside the mask (%)', sizes.share, [0, 0.1, 0.5, 1, 2, 5, 10, 20, 50]),
    histogram('words in the caption', sizes.words, [0, 5, 10, 20, 40, 80, 160]),
  ]
  const first = await firstRecords(source)
  return { name, format, records, schema, warnings, leftOut, first, checked, rejects, histograms }
}

function countReject(rejects: Inspection['rejects'], bad: BadRecord): void {
  const entry = rejects[bad.reason] ?? { count: 0, example: bad.message }
  entry.count++
  rejects[bad.reason] = entry
}

async function tryGet(source: Source, index: number, rejects: Inspection['rejects']): Promise<Example | null> {
  try {
    return await source.get(index)
  } catch (error) {
    if (!(error instanceof BadRecord)) throw error
    countReject(rejects, error)
    return null
  }
}

function measure({ image, mask, caption }: Example, sizes: { side: number[]; share: number[]; words: number[] }): void {
  sizes.side.push(Math.max(image.width, image.height))
  sizes.share.push((100 * maskArea(mask)) / (mask.width * mask.height))
  sizes.words.push(caption === '' ? 0 : caption.split(/\s+/).length)
}

/** Counts per half-open bin [edge, next edge); the last one is open above. */
function histogram(title: string, values: readonly number[], edges: readonly number[]): Histogram {
  const bins = edges.map((edge, i) => {
    const next = edges[i + 1]
    const count = values.filter((v) => v >= edge && (next === undefined || v < next)).length
    return { label: next === undefined ? `${edge} and more` : `${edge} to ${next}`, count }
  })
  return { title, bins }
}

async function firstRecords(source: Source): Promise<FirstRecord[]> {
  const first: FirstRecord[] = []
  for (let i = 0; i < Math.min(3, source.length); i++) {
    const example = await tryGet(source, i, {})
    if (example) first.push(firstRecord(example))
  }
  return first
}

function firstRecord({ id, image, mask, caption, category }: Example): FirstRecord {
  const share = (100 * maskArea(mask)) / (mask.width * mask.height)
  const inside = `${share.toFixed(2)} % inside, box ${JSON.stringify(maskBox(mask))}`
  return { id, image: `${image.width} x ${image.height}`, mask: inside, caption, category }
}

const barWidth = 40

function drawHistogram({ title, bins }: Histogram): string[] {
  const max = Math.max(1, ...bins.map((b) => b.count))
  const labels = Math.max(...bins.map((b) => b.label.length))
  const counts = Math.max(...bins.map((b) => String(b.count).length))
  return [
    title,
    ...bins.map(({ label, count }) => {
      const bar = '#'.repeat(count === 0 ? 0 : Math.max(1, Math.round((barWidth * count) / max)))
      return `  ${label.padStart(labels)}  ${String(count).padStart(counts)}  ${bar}`.trimEnd()
    }),
  ]
}

/** The inspection as text for a terminal. */
export function renderInspection(inspection: Inspection): string {
  const { name, format, records, schema, warnings, leftOut, first, checked, rejects, histograms } = inspection
  const lines = [`${name}: ${format}`, `records: ${records}`]
  for (const [why, n] of Object.entries(leftOut)) lines.push(`left out: ${n}, ${why}`)
  for (const warning of warnings) lines.push(`warning: ${warning}`)
  lines.push('', 'schema', ...schema.map((line) => `  ${line}`), '', 'first records')
  for (const record of first) {
    lines.push(`  ${record.id}`, `    image ${record.image}, mask ${record.mask}`, `    ${oneLine(record.caption)}`)
  }
  const entries = Object.entries(rejects)
  const total = entries.reduce((sum, [why, r]) => sum + (why === 'broken-shard' ? 0 : r.count), 0)
  const share = checked === 0 ? 0 : (100 * total) / checked
  lines.push('', `unusable: ${total} of ${checked} checked (${share.toFixed(1)} %)`)
  for (const [why, { count, example }] of entries) lines.push(`  ${why}: ${count}, for example ${example}`)
  for (const h of histograms) lines.push('', ...drawHistogram(h))
  return spellControls(`${lines.join('\n')}\n`)
}

function oneLine(text: string): string {
  const flat = text.replace(/\s+/g, ' ')
  return flat.length > 160 ? `${flat.slice(0, 157)}...` : flat
}
