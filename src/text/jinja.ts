// Chat templates that a model folder brings, rendered by @huggingface/jinja. A template is somebody else's program: it runs in a
// process with limits on time, memory and output, once for each folder that is opened.
import { type SpawnSyncReturns, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Mismatch, readJsonObject } from '../core/index.ts'
import { type FolderTemplate, folderTemplate } from './folder-template.ts'
import { type ChatTemplate, chatTemplate, chatTemplates } from './templates.ts'
import { contentsOf } from './tokenizer-files.ts'

export interface ChatTurn {
  role: string
  content: string | readonly Readonly<Record<string, unknown>>[]
}

const program = (jinja: string) => `
import { Template } from ${JSON.stringify(pathToFileURL(jinja).href)}
let text = ''
for await (const part of process.stdin) text += part
const { template, input } = JSON.parse(text)
try {
  process.stdout.write(new Template(template).render(input))
} catch (error) {
  process.stderr.write(String(error.message).slice(0, 300))
  process.exitCode = 2
}`

/** What the folder's template makes of turns, up to the answer unless the options say otherwise. */
export function renderTemplate(
  dir: string,
  template: FolderTemplate,
  turns: readonly ChatTurn[],
  options: Record<string, unknown> = {},
  { seconds = 20, characters = 2 ** 20 }: { seconds?: number; characters?: number } = {},
): string {
  const input = { messages: turns, add_generation_prompt: true, ...specialTokens(dir), ...options }
  const code = program(createRequire(import.meta.url).resolve('@huggingface/jinja'))
  const ended = spawnSync(process.execPath, ['--max-old-space-size=256', '--input-type=module', '-e', code], {
    input: JSON.stringify({ template: template.text, input }),
    encoding: 'utf8',
    env: {}, // no secrets to read
    killSignal: 'SIGKILL',
    timeout: seconds * 1000,
    maxBuffer: 4 * characters,
  })
  const reason = failure(ended, seconds, characters)
  if (reason === null) return ended.stdout
  const expected = `a template that renders within ${seconds} seconds, 256 MiB and ${characters} characters`
  throw new Mismatch({ where: join(dir, template.file), field: 'chat_template', expected, got: reason })
}

function failure(
  { error, status, signal, stdout, stderr }: SpawnSyncReturns<string>,
  seconds: number,
  characters: number,
): string | null {
  const code = (error as NodeJS.ErrnoException | undefined)?.code
  if (code === 'ETIMEDOUT') return `no end after ${seconds} seconds`
  if (code === 'ENOBUFS' || (stdout?.length ?? 0) > characters) return 'a longer text'
  if (error) return error.message
  if (status === 0) return null
  return status === 2 ? stderr : `a renderer that ran out of memory or crashed (${signal ?? `exit status ${status}`})`
}

/** bos_token and so on of tokenizer_config.json; some are objects with the text inside. */
function specialTokens(dir: string): Record<string, string> {
  const path = join(dir, 'tokenizer_config.json')
  const raw = existsSync(path) ? readJsonObject(path) : {}
  return Object.fromEntries(
    ['bos_token', 'eos_token', 'pad_token'].map((name) => [name, contentsOf(raw[name])[0] ?? '']),
  )
}

/** The built-in template of this name; if there is none, the folder's. */
export function templateOf(dir: string, name: string): ChatTemplate {
  const own = Object.hasOwn(chatTemplates, name) ? null : folderTemplate(dir)
  return own ? fromFolder(dir, own) : chatTemplate(name, join(dir, 'config.json'))
}

const [question, answer] = ['QUESTION-7f3a', 'ANSWER-7f3a']

/** Around a question and after an answer; a tokenizer that begins texts with bos_token adds it itself. */
function fromFolder(dir: string, own: FolderTemplate): ChatTemplate {
  const asked = [{ role: 'user', content: question }]
  const [before, after, ...more] = renderTemplate(dir, own, asked).split(question)
  const whole = renderTemplate(dir, own, [...asked, { role: 'assistant', content: answer }], {
    add_generation_prompt: false,
  })
  const end = whole.split(answer)[1]
  if (before === undefined || after === undefined || more.length > 0 || end === undefined) {
    const expected = 'a template that shows a question and an answer once'
    throw new Mismatch({ where: join(dir, own.file), field: 'chat_template', expected, got: whole.slice(0, 200) })
  }
  const { bos_token: bos = '' } = specialTokens(dir)
  const head = bos !== '' && before.startsWith(bos) ? before.slice(bos.length) : before
  const suffix = end.trimEnd()
  return {
    ...{ name: own.file, system: '', suffix, suffixAsEos: suffix !== '', sep: end.slice(suffix.length) },
    instruction: (input) => head + input + after,
    stopWords: suffix === '' ? [] : [suffix],
  }
}
