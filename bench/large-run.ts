// A run folder of 20,000 steps with 24 metrics each and 500,000 samples, as the writer would write it.
import { closeSync, mkdirSync, openSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'

/** `counts`: a mask of 8 x 8 in run lengths. */
export function makeLargeRun(dir: string, counts: string): void {
  mkdirSync(dir, { recursive: true })
  writeFileSync(join(dir, 'config.json'), '{"seed":1}')
  writeFileSync(join(dir, 'environment.json'), '{}')
  const files = ['events.jsonl', 'timing.jsonl', 'samples.jsonl'].map((name) => openSync(join(dir, name), 'w'))
  const names = Array.from({ length: 22 }, (_, i) => `"points/metric_${i}":0.${123456 + i}`).join(',')
  const text = ['', '', '']
  const flush = () => {
    files.forEach((fd, i) => {
      writeSync(fd, text[i]!)
      text[i] = ''
    })
  }
  for (let step = 1; step <= 20_000; step++) {
    text[0] += `{"t":"step","step":${step},"metrics":{"total_loss":${1 / step},"points/reward_mean":${step / 20_000},${names}}}\n`
    text[1] += `{"t":"step","step":${step},"time":${1.7e12 + step},"metrics":{"step_time":1,"seconds/learn":0.4}}\n`
    for (let k = 0; k < 25; k++)
      text[2] += `{"step":${step},"loop":"points","id":"record-${step % 3000}","k":${k},"shown":[{"kind":"text","by":"policy","text":"the disc left of the square"},{"kind":"mask","by":"ema","mask":{"size":[8,8],"counts":"${counts}"}}],"rewards":{"iou":0.${k + 10}},"total":0.${k + 10},"advantage":${k - 12},"logp":-3.5,"length":9}\n`
    if (step % 500 === 0) flush()
  }
  flush()
  for (const fd of files) closeSync(fd)
}
