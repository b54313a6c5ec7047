// A run of a few steps through the writer, as a trainer does it, for tests of trackers.
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { RunWriter, readRun, type Sample, type TrackerName } from '../../src/tracking/index.ts'

export const newFolder = () => mkdtempSync(join(tmpdir(), 'trackers-'))
export const config = {
  seed: 7,
  rl: { beta: 0.04, lossType: 'grpo', list: [1, 2] },
  judge: { apiKey: 'sk-hidden', on: true },
}

async function image(dir: string, name: string): Promise<void> {
  const { default: sharp } = await import('sharp')
  const png = await sharp(Buffer.alloc(8 * 8 * 3, 120), { raw: { width: 8, height: 8, channels: 3 } })
    .png()
    .toBuffer()
  mkdirSync(join(dir, 'images'), { recursive: true })
  writeFileSync(join(dir, 'images', name), png)
}

function sample(step: number, k: number): Sample {
  const given = { size: [8, 8] as const, counts: '0;51003' }
  const shown = [
    { kind: 'text' as const, by: 'policy' as const, text: `<b>caption ${k}</b>` },
    { kind: 'points' as const, by: 'record' as const, size: given.size, points: [{ x: 3, y: 4, positive: true }] },
  ]
  const scores = { rewards: { iou: k / 4 }, total: k / 4, advantage: k - 1.5, logp: -3.5, length: 7 }
  return { step, loop: 'points', id: 'r', k, shown, ...scores, image: 'a.png' }
}

/** A run of `steps` steps through the writer, as a trainer does it. */
export async function train(dir: string, steps: number, reportTo: readonly TrackerName[]): Promise<void> {
  const writer = RunWriter.create(dir, { config, environment: {}, reportTo })
  await image(dir, 'a.png')
  writer.eval(0, 'before', 4, { giou: { mean: 0.25, low: 0.125, high: 0.5 } })
  for (let step = 1; step <= steps; step++) {
    const odd = step === 2 ? Number.NaN : step === 3 ? Number.NEGATIVE_INFINITY : 1 / step
    writer.step(
      step,
      { loss: odd, 'points/reward_mean': Math.sin(step), ['x'.repeat(50)]: step * 1e-30 },
      { step_time: step / 3 },
    )
    writer.samples([0, 1].map((k) => sample(step, k)))
  }
  writer.eval(steps, 'after', 4, { giou: { mean: 0.75, low: 0.5, high: Number.NaN } })
  writer.stop(steps, 'done')
  await writer.close()
}

/** Rows by step: exactly what events.jsonl and timing.jsonl say. */
export function expectedRows(dir: string): Map<number, Record<string, number>> {
  const run = readRun(dir)
  const rows = new Map<number, Record<string, number>>()
  const add = (step: number, values: Readonly<Record<string, number>>) =>
    rows.set(step, { ...rows.get(step), ...values })
  for (const event of run.events) {
    if (event.t === 'step') add(event.step, event.metrics)
    if (event.t !== 'eval') continue
    for (const [key, { mean, low, high }] of Object.entries(event.metrics))
      add(event.step, { [`eval/${key}`]: mean, [`eval/${key}/low`]: low, [`eval/${key}/high`]: high })
  }
  for (const line of run.timing) if (line.t === 'step') add(line.step, line.metrics ?? {})
  return rows
}
