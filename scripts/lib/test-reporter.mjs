// Reporter for node --test: one line per file, failures in full with what the file printed, counts to $ROUNDTRIP_TEST_COUNTS.
import { writeFileSync } from 'node:fs'
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { inspect } from 'node:util'
import { withSourceLines } from '../../tests/support/loader.mjs'

const slow = 5000 // ms; slower tests get their own line, which shows progress

const duration = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`)

function explain(error) {
  const cause = error?.cause ?? error
  const text =
    cause instanceof Error ? (cause.stack ?? cause.message) : typeof cause === 'string' ? cause : inspect(cause)
  const lines = withSourceLines(text)
    .split('\n')
    .filter((line) => !/^\s+at .*\(?node:internal/.test(line))
  return lines
    .slice(0, 60)
    .map((line) => `      ${line}`)
    .join('\n')
}

class FileReport {
  constructor(path) {
    Object.assign(this, { path, passed: 0, failed: 0, skipped: 0, ms: 0, printed: [], notes: [] })
  }

  add({ type, data }) {
    if (type === 'test:stdout' || type === 'test:stderr') this.printed.push(data.message)
    if (type !== 'test:pass' && type !== 'test:fail') return
    if (data.nesting === 0) this.ms += data.details.duration_ms
    if (type === 'test:fail') this.#fail(data)
    else if (data.name === this.path)
      this.#fail({ ...data, details: { error: 'it has no tests' } }) // passed by having none
    else if (data.details.type !== 'suite') this.#pass(data)
  }

  #pass({ name, skip, todo, details }) {
    if (skip !== undefined || todo !== undefined) {
      this.skipped++
      this.notes.push(`    skipped: ${name}${typeof skip === 'string' ? ` (${skip})` : ''}`)
    } else this.passed++
    if (details.duration_ms > slow) this.notes.push(`    ${duration(details.duration_ms)}: ${name}`)
  }

  #fail({ name, details }) {
    const inner = details.error?.failureType
    if (inner === 'subtestsFailed') return // the failing test inside is counted
    this.failed++
    const title = name === this.path ? 'the file itself' : name
    this.notes.push(`    FAILED: ${title}\n${explain(details.error)}`)
  }

  text() {
    const tests = this.passed + this.failed + this.skipped
    const head = `  ${this.failed > 0 ? 'FAIL' : 'ok  '} ${relative(process.cwd(), this.path)}  ${tests} test${tests === 1 ? '' : 's'}  ${duration(this.ms)}`
    const printed =
      this.failed > 0 && this.printed.length > 0 ? [`    printed:\n${this.printed.join('').trimEnd()}`] : []
    return `${[head, ...this.notes, ...printed].join('\n')}\n`
  }
}

/** Node 20.11 gives the URL of a file that a loader has compiled. */
const pathOf = (file) => (file?.startsWith('file:') ? fileURLToPath(file) : file)

function writeCounts(reports) {
  const counts = { passed: 0, failed: 0, skipped: 0, files: [...reports.keys()] }
  for (const report of reports.values())
    for (const name of ['passed', 'failed', 'skipped']) counts[name] += report[name]
  if (process.env.ROUNDTRIP_TEST_COUNTS) writeFileSync(process.env.ROUNDTRIP_TEST_COUNTS, JSON.stringify(counts))
}

export default async function* reporter(events) {
  const reports = new Map()
  let current = null
  for await (const event of events) {
    const path = pathOf(event.data?.file)
    if (!path || !/^test:(pass|fail|stdout|stderr)$/.test(event.type)) continue
    if (!reports.has(path)) reports.set(path, new FileReport(path))
    const report = reports.get(path)
    // output of other files may arrive in between; results come file after file
    if (event.type === 'test:pass' || event.type === 'test:fail') {
      if (current && current !== report) yield current.text()
      current = report
    }
    report.add(event)
  }
  if (current) yield current.text()
  writeCounts(reports)
}
