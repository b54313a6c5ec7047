// IoU of two 1024 x 1024 masks as run lengths, compared with NumPy's boolean arithmetic on the same pixels.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { maskFromDense, maskIou } from '../src/mask/index.ts'
import { type BenchRow, row } from './bench.ts'

const size = 1024
const unit = 'us'

/** An ellipse with a wavy edge, about a quarter of the image: a region as segmentation models draw them. */
function blob(cx: number, cy: number, radius: number): Uint8Array {
  return Uint8Array.from({ length: size * size }, (_, i) => {
    const dx = (i % size) - cx
    const dy = Math.floor(i / size) - cy
    const edge = radius * (1 + 0.05 * Math.sin(9 * Math.atan2(dy, dx)))
    return dx * dx + 1.5 * dy * dy < edge * edge ? 1 : 0
  })
}

/** Microseconds of one call: the fastest of 40 rounds of `calls` calls, which other processes disturb least. */
function time(call: () => number, calls: number): number {
  for (let i = 0; i < 3 * calls; i++) call()
  const rounds = Array.from({ length: 40 }, () => {
    const start = performance.now()
    for (let i = 0; i < calls; i++) call()
    return ((performance.now() - start) * 1000) / calls
  })
  return Math.min(...rounds)
}

const script = `
import sys, time, json
import numpy as np
a = np.fromfile(sys.argv[1], dtype=np.uint8).reshape(${size}, ${size}).astype(bool)
b = np.fromfile(sys.argv[2], dtype=np.uint8).reshape(${size}, ${size}).astype(bool)
def measure(f, calls):
    for _ in range(calls): f()
    rounds = []
    for _ in range(40):
        t = time.perf_counter()
        for _ in range(calls): f()
        rounds.append((time.perf_counter() - t) * 1e6 / calls)
    return min(rounds)
summed = lambda: np.logical_and(a, b).sum() / np.logical_or(a, b).sum()
counted = lambda: np.count_nonzero(a & b) / np.count_nonzero(a | b)
print(json.dumps({"sum": measure(summed, 4), "count": measure(counted, 20), "value": float(counted())}))
`

interface NumPy {
  sum: number
  count: number
  value: number
}

function numpy(a: Uint8Array, b: Uint8Array): NumPy | null {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-iou-'))
  try {
    const paths = [join(folder, 'a'), join(folder, 'b')] as const
    writeFileSync(paths[0], a)
    writeFileSync(paths[1], b)
    const done = spawnSync('/usr/bin/python3', ['-c', script, ...paths], { encoding: 'utf8' })
    return done.status === 0 ? (JSON.parse(done.stdout) as NumPy) : null
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

export async function run(): Promise<BenchRow[]> {
  const a = blob(500, 520, 300)
  const b = blob(540, 500, 310)
  const runsA = maskFromDense(a, size, size)
  const runsB = maskFromDense(b, size, size)
  const other = numpy(a, b)
  const value = maskIou(runsA, runsB)
  if (other && other.value !== value) throw new Error(`NumPy says ${other.value}, we ${value}`)
  const runs = time(() => maskIou(runsA, runsB), 50)
  return [
    row('run lengths / numpy and, or, sum', runs, other?.sum, unit),
    row('run lengths / numpy &, |, count_nonzero', runs, other?.count, unit),
  ]
}
