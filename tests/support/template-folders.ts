import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'

export const scratch = mkdtempSync(join(tmpdir(), 'jinja-'))
after(() => rmSync(scratch, { recursive: true, force: true }))

let folders = 0

/** A new folder with these files. */
export function folder(files: Record<string, string>): string {
  const dir = join(scratch, String(folders++))
  mkdirSync(dir)
  for (const [name, text] of Object.entries(files)) writeFileSync(join(dir, name), text)
  return dir
}

/** A chat template of a family that is not built in. */
export const turns =
  "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content | trim + '<|end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
