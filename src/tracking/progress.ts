// The terminal status line: one rewritten line on a terminal, a plain line every few seconds elsewhere.

/** What `process.stderr` is, as far as we need it. */
export interface ProgressStream {
  write(text: string): unknown
  isTTY?: boolean
  columns?: number
}

export interface ProgressOptions {
  /** How many units the work has; undefined where nobody knows. */
  total?: number
  label: string
  /** Word for one unit: 'step', 'record'. */
  unit?: string
  /** Where the count starts, for resumed work: the rate does not count what was done before. */
  start?: number
  stream?: ProgressStream
  /** Milliseconds; for tests. */
  now?: () => number
}

export type ProgressFields = Readonly<Record<string, string | number>>

export interface Progress {
  update(n: number, fields?: ProgressFields): void
  /** A message above the line; the line stays. */
  message(text: string): void
  /** Leaves the last state on the screen and ends the line. */
  done(): void
}

const redrawEvery = 100
const plainEvery = 5000
/** Milliseconds of work before a rate, and with it the time left, is known. */
const soonest = 200
const eighths = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉']

/** 1:02:03, 2:03, 0:09. */
export function clock(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return '-:--'
  const s = Math.round(seconds)
  const two = (n: number) => String(n).padStart(2, '0')
  const minutes = Math.floor(s / 60) % 60
  const hours = Math.floor(s / 3600)
  return hours > 0 ? `${hours}:${two(minutes)}:${two(s % 60)}` : `${minutes}:${two(s % 60)}`
}

/** A number in about seven characters or fewer. */
export function short(value: string | number): string {
  if (typeof value === 'string') return value
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value)
  const size = Math.abs(value)
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(1)
  return value.toPrecision(3)
}

/** Control characters would move the cursor: what is shown may come from a file. */
function clean(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f]/g, ' ')
}

/** Columns a character takes; East Asian wide ones and emoji take two, combining ones none. */
function widthOf(char: string): number {
  if (/\p{Mark}|\u200b|\u200d|\ufe0f/u.test(char)) return 0
  return /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/u.test(char) ||
    /\p{Extended_Pictographic}/u.test(char)
    ? 2
    : 1
}

function fit(text: string, columns: number): string {
  let used = 0
  let out = ''
  for (const char of text) {
    used += widthOf(char)
    if (used > columns) return out
    out += char
  }
  return out
}

function bar(share: number, cells: number): string {
  const filled = Math.max(0, Math.min(1, share)) * cells
  const whole = Math.floor(filled)
  const part = eighths[Math.floor((filled - whole) * 8)] ?? ''
  return `${'█'.repeat(whole)}${part}`.padEnd(cells)
}

interface State {
  n: number
  fields: ProgressFields
  /** Milliseconds of work, and units done in them. */
  elapsed: number
  gained: number
}

function rateOf({ gained, elapsed }: State, unit: string): string {
  const perSecond = gained / (elapsed / 1000)
  if (elapsed < soonest || !Number.isFinite(perSecond) || perSecond <= 0) return ''
  return perSecond >= 1 ? `${short(perSecond)} ${unit}/s` : `${short(1 / perSecond)} s/${unit}`
}

function timeOf({ n, gained, elapsed }: State, total: number | undefined): string {
  if (total === undefined || n >= total) return clock(elapsed / 1000)
  return gained > 0 && elapsed >= soonest ? `ETA ${clock(((total - n) * elapsed) / gained / 1000)}` : 'ETA -:--'
}

const minBar = 6

/** The line, at most `columns` wide. The last fields are left out whole before the bar is; a bar without room is not drawn. */
export function progressLine(state: State, options: ProgressOptions, columns: number): string {
  const { total, label, unit = 'step' } = options
  const count = total === undefined ? `${state.n}` : `${state.n}/${total}`
  const percent = total ? `${Math.floor((100 * Math.min(state.n, total)) / total)}%` : ''
  const fields = Object.entries(state.fields).map(([key, value]) => `${key} ${short(value)}`)
  const times = [percent, count, timeOf(state, total), rateOf(state, unit)].filter((part) => part !== '')
  const head = clean(label)
  const cellsBeside = (numFields: number) => {
    const rest = clean([...times, ...fields.slice(0, numFields)].join('  '))
    return { rest, cells: Math.min(24, columns - [...head].length - [...rest].length - 4) }
  }
  let shown = cellsBeside(fields.length)
  for (let n = fields.length; total && shown.cells < minBar && n > 0; ) shown = cellsBeside(--n)
  const { rest, cells } = shown
  const drawn = total && cells >= minBar ? ` |${bar(state.n / total, cells)}| ` : '  '
  return fit(head + drawn + rest, columns)
}

/** Shows how far `label` has come, on standard error. */
export function progress(options: ProgressOptions): Progress {
  const { stream = process.stderr, now = () => performance.now(), start = 0 } = options
  const began = now()
  const state: State = { n: start, fields: {}, elapsed: 0, gained: 0 }
  let shown = Number.NEGATIVE_INFINITY
  let counted = Number.NaN
  let written = ''

  const draw = () => {
    shown = now()
    counted = state.n
    // One column stays free: a full line makes some terminals wrap.
    const columns = stream.isTTY ? Math.max(1, (stream.columns || 80) - 1) : 160
    const line = progressLine(state, options, columns)
    if (line === written) return
    written = line
    stream.write(stream.isTTY ? `\r${line}\u001b[K` : `${line}\n`)
  }
  return {
    update(n, fields) {
      state.n = n
      state.gained = n - start
      state.elapsed = now() - began
      if (fields) state.fields = fields
      if (now() - shown >= (stream.isTTY ? redrawEvery : plainEvery)) draw()
    },
    message(text) {
      if (!stream.isTTY) return void stream.write(`${text}\n`)
      stream.write(`\r\u001b[K${text}\n`)
      written = ''
      draw()
    },
    done() {
      if (!stream.isTTY && counted === state.n) return
      state.elapsed = now() - began
      draw()
      if (stream.isTTY && written !== '') stream.write('\n')
    },
  }
}
