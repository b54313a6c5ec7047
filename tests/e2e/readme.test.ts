// Runs every command of README.md in a copy of the repository without packages and build record. The miniature and generated shards
// replace a real checkpoint and data. pages.test.ts runs the commands of docs/.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import test, { after, before } from 'node:test'
import { fileURLToPath } from 'node:url'
import { encodePng } from '../../src/image/index.ts'
import { maskToPng } from '../../src/mask/index.ts'
import { makeScene, sceneExample } from '../../src/scenes/index.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'roundtrip-readme-'))
const copy = join(folder, 'roundtrip')
const readme = readFileSync(join(root, 'README.md'), 'utf8')

/** Code blocks of a language. */
function blocks(text: string, language: string): string[] {
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, 'gm'))].map((m) => m[1]!)
}

/** Commands of the shell blocks, one each, comments and continuations resolved. */
function commandsOf(text: string): string[] {
  const lines = blocks(text, 'sh').flatMap((block) => block.replace(/\\\n\s*/g, ' ').split('\n'))
  return lines.map((line) => line.replace(/\s+# .*$|^#.*$/, '').trim()).filter((line) => line !== '')
}

function copyRepository(): void {
  const listed = spawnSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: root })
  assert.equal(listed.status, 0, listed.stderr.toString())
  const paths = listed.stdout
    .toString()
    .split('\0')
    .filter((path) => path !== '' && existsSync(join(root, path)))
  for (const path of paths) {
    mkdirSync(dirname(join(copy, path)), { recursive: true })
    cpSync(join(root, path), join(copy, path))
  }
}

/** A judge that cannot answer: groups fall back to METEOR. */
async function openJudge(): Promise<{ url: string; server: Server }> {
  const server = createServer((_request, response) => {
    const choices = [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: '7' } }]
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ id: 'x', object: 'chat.completion', created: 0, model: 'm', choices }))
  })
  await new Promise<void>((done) => void server.listen(0, '127.0.0.1', done))
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, server }
}

interface Ran {
  code: number | null
  out: string
  text: string
}

function shell(command: string): Promise<Ran> {
  const { ROUNDTRIP_ADDON: _, ...env } = process.env
  const quick = { npm_config_prefer_offline: 'true', npm_config_update_notifier: 'false' }
  const child = spawn('bash', ['-c', command], {
    cwd: copy,
    env: { ...env, ...quick },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const ran = { out: '', text: '' }
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    ran.out += part
    ran.text += part
  })
  child.stderr.setEncoding('utf8').on('data', (part: string) => {
    ran.text += part
  })
  return new Promise((done) => child.on('close', (code) => done({ code, ...ran })))
}

async function succeeds(command: string): Promise<Ran> {
  const ran = await shell(command)
  assert.equal(ran.code, 0, `${command}\n${ran.text}`)
  return ran
}

const cpu = '--device cpu --dtype float32 --rl.maxCompletionLength 16'
const adapters = '--lora.rank 4'
const held = '--data.evalFraction 0.5 --data.workers 0'
const oneStep = `--maxSteps 1 --batchSize 1 --rl.gradientAccumulationSteps 1 --rl.numGenerations 2 --evalRecords 2 ${held}`

/** What is added so that a command is short here; null: not run. */
const shortened: readonly [RegExp, string | null][] = [
  [/^npm run demo$/, '-- --maxSteps 1 --batchSize 1 --evalRecords 4 --json'],
  [/^npm test$/, null], // it runs this file
  [/^npx roundtrip-rl train /, `${cpu} ${adapters} ${oneStep}`],
  [/^npx roundtrip-rl doctor /, `${cpu} ${adapters}`],
  [/^npx roundtrip-rl eval /, `${cpu} ${held} --records 2`],
  [/^npx roundtrip-rl (inspect|data inspect|report|export|segment|caption) /, ''],
]

function extraOf(command: string): string | null {
  const rule = shortened.find(([pattern]) => pattern.test(command))
  assert.ok(rule, `README has a command this test does not know: ${command}`)
  return rule[1]
}

let judge: Awaited<ReturnType<typeof openJudge>>

before(async () => {
  copyRepository()
  judge = await openJudge()
})

after(() => {
  judge.server.close()
  rmSync(folder, { recursive: true, force: true })
})

test('npm run demo works in a copy without packages and ends with its metrics', async () => {
  assert.ok(!existsSync(join(copy, 'node_modules')))
  const command = commandsOf(readme).find((line) => line.startsWith('npm run demo'))!
  const { out } = await succeeds(`${command} ${extraOf(command)}`)
  const last = JSON.parse(out.trimEnd().split('\n').at(-1)!) as Record<string, unknown>
  assert.deepEqual(Object.keys(last), ['seed', 'seconds', 'before', 'after'])
})

async function writeInputs(): Promise<void> {
  const { image, mask } = sceneExample(makeScene(5, 0))
  writeFileSync(join(copy, 'photo.png'), await encodePng(image))
  writeFileSync(join(copy, 'region.png'), await maskToPng(mask))
  writeFileSync(join(copy, 'brief.mjs'), blocks(readme, 'js').find((block) => block.includes('// brief.mjs'))!)
  await succeeds('npx roundtrip-rl data make-scenes --n 16 --out shards')
}

function inPlace(command: string): string {
  return command
    .replaceAll('/models/Sa2VA-4B', 'assets/miniature')
    .replaceAll('/data/Fine-Grained-Dataset-Part1', 'shards')
    .replaceAll('http://localhost:9100/v1', judge.url)
}

test('every other command of README works, in order', async () => {
  await writeInputs()
  for (const command of commandsOf(readme).filter((line) => !line.startsWith('npm run demo'))) {
    const extra = extraOf(command)
    if (extra === null) continue
    // the drawn mask may be empty, and an empty region cannot be described
    if (command.includes(' caption ')) cpSync(join(copy, 'region.png'), join(copy, 'mask.png'))
    await succeeds(`${inPlace(command)} ${extra}`)
  }
  assert.ok(existsSync(join(copy, 'runs/gar/report.html')))
  assert.ok(existsSync(join(copy, 'exported/model.safetensors')))
  assert.match(readFileSync(join(copy, 'exported/README.md'), 'utf8'), /^base_model: "miniature"$/m)
  assert.ok(existsSync(join(copy, 'exported/roundtrip.png')), 'a picture of the run')
  assert.ok(!existsSync(join(copy, 'runs/train')))
})

test('README and the pages name no file of the repository that is missing', () => {
  const pages = [
    'README.md',
    'CONTRIBUTING.md',
    'SECURITY.md',
    ...readdirSync(join(root, 'docs')).map((name) => `docs/${name}`),
  ]
  for (const page of pages.filter((name) => name.endsWith('.md'))) {
    const links = [...readFileSync(join(root, page), 'utf8').matchAll(/\]\(([^)#]+)\)/g)].map((m) => m[1]!)
    for (const link of links.filter((to) => !to.startsWith('http')))
      assert.ok(existsSync(join(root, dirname(page), link)), `${page}: ${link}`)
  }
})
