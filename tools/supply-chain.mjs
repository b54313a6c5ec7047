// `node tools/supply-chain.mjs [--write]`: prints advisories about the locked packages, or rewrites the table of dev/supply-chain.md.
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { root } from '../scripts/lib/record.mjs'
import { fileOf, tableRows } from './lib/binary-files.mjs'

if (process.argv.includes('--write')) writeTable()
else process.exit(audit())

function writeTable() {
  const page = join(root, 'dev', 'supply-chain.md')
  let text = readFileSync(page, 'utf8')
  for (const { line, file, madeBy } of tableRows(text)) {
    const { bytes, hash } = fileOf(join(root, file))
    text = text.replace(line, `| ${file} | ${bytes} | ${hash} | ${madeBy} |`)
  }
  writeFileSync(page, text)
}

function audit() {
  const report = askRegistry()
  if (!report) return compareWithList()
  const found = Object.values(report.vulnerabilities)
  for (const { name, severity, range } of found) console.log(`${name} ${range}: ${severity}`)
  console.log(`the registry knows ${found.length} advisories about the locked packages`)
  return found.length > 0 ? 1 : 0
}

/** Null if the registry gives no advisories. */
function askRegistry() {
  let text
  try {
    text = execFileSync('npm', ['audit', '--json'], {
      cwd: root,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    })
  } catch (error) {
    text = error.stdout // npm exits with 1 if it found something, and if the registry is unreachable
  }
  const report = text ? JSON.parse(text) : {}
  return report.vulnerabilities ? report : null
}

function compareWithList() {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
  const bad = JSON.parse(readFileSync(join(root, 'tools', 'lib', 'known-bad.json'), 'utf8'))
  const locked = Object.entries(packages).filter(([path]) => path !== '')
  const found = locked.flatMap(([path, { version }]) => {
    const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
    return bad[name]?.includes(version) ? [`${name} ${version}`] : []
  })
  for (const one of found) console.log(`${one}: published with malicious code`)
  console.log(
    `the registry did not answer; ${found.length} of ${locked.length} locked packages are in tools/lib/known-bad.json`,
  )
  return found.length > 0 ? 1 : 0
}
