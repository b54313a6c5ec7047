import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { folder, turns } from '../../tests/support/template-folders.ts'
import { folderTemplate } from './folder-template.ts'
import { renderTemplate, templateOf } from './jinja.ts'

const golden = join(import.meta.dirname, '../../tests/fixtures/golden')

test('the template is that of chat_template.jinja, chat_template.json or tokenizer_config.json, in this order', () => {
  const named = (name: string) => JSON.stringify({ chat_template: name })
  const list = [
    { name: 'tools', template: 't' },
    { name: 'default', template: 'listed' },
  ]
  const files = { 'tokenizer_config.json': JSON.stringify({ chat_template: list }) }
  assert.deepEqual(folderTemplate(folder(files)), { file: 'tokenizer_config.json', text: 'listed' })
  const both = { ...files, 'chat_template.json': named('json') }
  assert.equal(folderTemplate(folder(both))?.text, 'json')
  assert.equal(folderTemplate(folder({ ...both, 'chat_template.jinja': 'plain' }))?.text, 'plain')
  assert.equal(folderTemplate(folder({ 'tokenizer_config.json': '{}' })), null)
})

test('a folder renders conversations as the reference does', () => {
  const dir = join(golden, 'qwen3_vl-tiny')
  const { template_cases } = JSON.parse(readFileSync(join(dir, 'golden.json'), 'utf8'))
  const template = folderTemplate(dir)!
  for (const { messages, options, text } of template_cases.slice(3))
    assert.equal(renderTemplate(dir, template, messages, options), text)
})

test("a name that is not built in takes the folder's template: prompt, end of an answer, stop words", () => {
  const tokens = JSON.stringify({ bos_token: { content: '<s>' } })
  const dir = folder({ 'chat_template.jinja': `{{ bos_token }}${turns}`, 'tokenizer_config.json': tokens })
  const template = templateOf(dir, 'of_somebody')
  assert.equal(template.instruction('Where?'), '<|user|>Where?<|end|>\n<|assistant|>')
  assert.deepEqual(
    [template.suffix, template.sep, template.suffixAsEos, template.stopWords],
    ['<|end|>', '\n', true, ['<|end|>']],
  )
  assert.equal(templateOf(dir, 'qwen_chat').name, 'qwen_chat')
  assert.throws(() => templateOf(folder({}), 'of_somebody'), /template: expected phi3_chat, .*got of_somebody/)
  const silent = folder({ 'chat_template.jinja': 'nothing' })
  assert.throws(() => templateOf(silent, 'of_somebody'), /chat_template: expected a template that shows a question/)
})

for (const [what, text, reason, seconds] of [
  ['loops', '{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}', /no end after 2 s/, 2],
  ['writes too much', "{% for i in range(9999) %}{{ 'aaaaaaaa' }}{% endfor %}", /got a longer text/, 20],
  ['takes all memory', '{% for i in range(10 ** 9) %}{% endfor %}', /out of memory or crashed|no end/, 20],
  ['refuses', "{{ raise_exception('only text') }}", /got only text/, 20],
  ['is damaged', '{% for %}', /chat_template: expected a template that renders/, 20],
] as const)
  test(`a template that ${what} ends with a clear message`, () => {
    const dir = folder({ 'chat_template.jinja': text })
    const render = () => renderTemplate(dir, folderTemplate(dir)!, [], {}, { seconds, characters: 1000 })
    assert.throws(render, reason)
  })
