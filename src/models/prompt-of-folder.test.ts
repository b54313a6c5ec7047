// Prompts of folders whose family has no built-in template.
import assert from 'node:assert/strict'
import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { folder, scratch, turns } from '../../tests/support/template-folders.ts'
import { folderTemplate } from '../text/index.ts'
import { openFamily, promptOf } from './open.ts'
import type { Sa2VAFamily } from './sa2va/index.ts'

const golden = join(import.meta.dirname, '../../tests/fixtures/golden')

test("a Sa2VA whose template is not built in opens, and its prompts are the folder's", () => {
  const dir = join(scratch, 'sa2va')
  cpSync(join(golden, 'sa2va-tiny'), dir, { recursive: true })
  const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8'))
  writeFileSync(join(dir, 'config.json'), JSON.stringify({ ...config, template: 'of_somebody' }))
  writeFileSync(join(dir, 'chat_template.jinja'), turns.replaceAll('<|', '<['))
  const family = openFamily(dir, { dtype: 'float32' }) as Sa2VAFamily
  assert.deepEqual(family.stopWords, ['<[end|>'])
  for (const t of family.module.parameters().values()) t.dispose()
  assert.equal(promptOf(dir, 'Where?').prompt, '<[user|><img><IMG_CONTEXT></img>\nWhere?<[end|>\n<[assistant|>')
})

test('the prompt of a folder of another family is rendered by its template, with a picture if it knows pictures', () => {
  const config = JSON.stringify({ architectures: ['LlamaForCausalLM'] })
  const text = folder({ 'config.json': config, 'chat_template.jinja': turns })
  assert.deepEqual(promptOf(text, 'Hello'), {
    by: 'chat_template.jinja',
    prompt: '<|user|>Hello<|end|>\n<|assistant|>',
  })
  const own = folderTemplate(join(golden, 'qwen3_vl-tiny'))!.text
  const picture = folder({ 'config.json': config, 'chat_template.jinja': own })
  assert.match(promptOf(picture, 'Hello').prompt, /<\|image_pad\|><\|vision_end\|>Hello<\|im_end\|>/)
  assert.throws(() => promptOf(folder({ 'config.json': config }), 'Hello'), /got LlamaForCausalLM/)
})
