// Conversations as the released chat templates of both generations render them.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { Mismatch, readJsonObject } from '../../core/index.ts'
import { type ChatTurn, folderTemplate } from '../../text/index.ts'
import { generations, type QwenBase } from './generations.ts'

export interface ChatOptions {
  /** Numbers the pictures of the conversation. */
  add_vision_id?: boolean
  /** Ends where the answer begins; default true. */
  add_generation_prompt?: boolean
  /** Tokens of each picture, in order; one each if absent. */
  pictureTokens?: readonly number[]
}

/** A picture is a part of the type `image`, or with a key `image` or `image_url`. */
export function renderChat(turns: readonly ChatTurn[], options: ChatOptions = {}): string {
  let pictures = 0
  const picture = () => {
    const pads = '<|image_pad|>'.repeat(options.pictureTokens?.[pictures] ?? 1)
    const title = options.add_vision_id ? `Picture ${pictures + 1}: ` : ''
    pictures++
    return `${title}<|vision_start|>${pads}<|vision_end|>`
  }
  const isPicture = (part: object) =>
    'image' in part || 'image_url' in part || ('type' in part && part.type === 'image')
  const content = ({ content }: ChatTurn) =>
    typeof content === 'string' ? content : content.map((p) => (isPicture(p) ? picture() : (p.text ?? ''))).join('')
  const opening = options.add_generation_prompt === false ? '' : '<|im_start|>assistant\n'
  return turns.map((turn) => `<|im_start|>${turn.role}\n${content(turn)}<|im_end|>\n`).join('') + opening
}

/** One user turn about images, up to the assistant's answer; no system turn if its text is empty. */
export function chatText(question: string, pictureTokens: readonly number[], system = helpful): string {
  const content = [...pictureTokens.map(() => ({ type: 'image' })), { type: 'text', text: question }]
  const first = system === '' ? [] : [{ role: 'system', content: system }]
  return renderChat([...first, { role: 'user', content }], { pictureTokens })
}

/** Units of the coordinates that the model in a folder writes; pixels if it cannot be read. */
export function coordsOf(dir: string): 'pixel' | 'thousand' {
  const where = join(dir, 'config.json')
  const type = existsSync(where) ? String(readJsonObject(where).model_type) : ''
  return Object.hasOwn(generations, type) ? generations[type as QwenBase].coords : 'pixel'
}

const helpful = generations.qwen2_5_vl.system

/** The system turn of the folder's chat template; without a template the base's own habit. */
export function systemTurn(dir: string, base: QwenBase): string {
  const template = folderTemplate(dir)?.text
  if (template === undefined) return generations[base].system
  if (/assistant(\\n|\n)<think>/.test(template)) {
    const [expected, got] = ['a template whose answer starts empty', 'one whose answer starts inside <think>']
    const hint = 'Thinking editions are not supported; use the Instruct edition'
    throw new Mismatch({ where: join(dir, folderTemplate(dir)!.file), field: 'chat_template', expected, got, hint })
  }
  return template.includes(helpful) ? helpful : ''
}
