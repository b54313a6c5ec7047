// Import cycles between files. A type-only import inside one folder does not count, nor does `await import()`, which runs later.
import { dirname, relative, resolve } from 'node:path'

const statement = /^(?:import|export)\s+(type\s)?[^'";]*?from\s+'(\.[^']+)'|^import\s+'(\.[^']+)'/gm

/** Files that `path` imports: values, and types of other folders. */
function importsOf(path, text) {
  return [...text.matchAll(statement)].flatMap(([, type, from, bare]) => {
    const to = resolve(dirname(path), from ?? bare)
    return type && dirname(to) === dirname(path) ? [] : [to]
  })
}

/** One cycle per group of files that import each other, as 'a.ts -> b.ts -> a.ts'; `texts` maps paths to source text. */
export function importCycles(texts, root) {
  const imports = new Map([...texts].map(([path, text]) => [path, importsOf(path, text).filter((to) => texts.has(to))]))
  const done = new Set()
  const cycles = []
  const visit = (path, trail) => {
    const at = trail.indexOf(path)
    if (at >= 0) cycles.push([...trail.slice(at), path].map((p) => relative(root, p)).join(' -> '))
    if (at >= 0 || done.has(path)) return
    for (const to of imports.get(path)) visit(to, [...trail, path])
    done.add(path)
  }
  for (const path of imports.keys()) visit(path, [])
  return cycles
}
