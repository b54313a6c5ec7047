// A judge for tests: a real HTTP server that answers honestly by looking words up, or misbehaves as the test says.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface Asked {
  system: string
  user: string
  /** The text between the fence lines. */
  text: string
  temperature: number
  authorization: string | undefined
  hasSchema: boolean
}

/** A reply's text, or another way to treat the request. */
export type Reply =
  | string
  | { refusal: string }
  | { status: number; headers?: Record<string, string>; body?: string }
  | { raw: string; type?: string }
  | 'DROP'
  | 'HANG'
  | 'HANG_BODY'

export interface ScriptedServer {
  url: string
  asked: Asked[]
  /** Requests in flight at once, at most. */
  peak: number
  close(): Promise<void>
}

async function readBody(request: IncomingMessage): Promise<string> {
  let body = ''
  for await (const part of request) body += part
  return body
}

function parse(body: string, request: IncomingMessage): Asked {
  const json = JSON.parse(body) as { messages: { content: string }[]; temperature: number; response_format?: unknown }
  const [system, user] = json.messages.map((m) => m.content) as [string, string]
  const tag = /both read ([0-9a-f]{12})\b/.exec(system)?.[1]
  const parts = tag ? user.split(`${tag}\n`) : [user]
  const text = (parts[1] ?? '').replace(/\n$/, '')
  const { temperature, response_format } = json
  return {
    system,
    user,
    text,
    temperature,
    authorization: request.headers.authorization,
    hasSchema: response_format !== undefined,
  }
}

function send(response: ServerResponse, reply: Reply): void {
  const json = (status: number, body: string, headers: Record<string, string> = {}) =>
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(body)
  if (reply === 'HANG') return
  if (reply === 'DROP') response.destroy()
  else if (reply === 'HANG_BODY') response.writeHead(200, { 'content-type': 'application/json' }).write('{"choices": [')
  else if (typeof reply !== 'string' && 'status' in reply)
    json(reply.status, reply.body ?? '{"error": {"message": "scripted"}}', reply.headers)
  else if (typeof reply !== 'string' && 'raw' in reply)
    json(200, reply.raw, { 'content-type': reply.type ?? 'application/json' })
  else {
    const message = typeof reply === 'string' ? { content: reply } : { content: null, refusal: reply.refusal }
    json(200, JSON.stringify({ choices: [{ message }], usage: { prompt_tokens: 100, completion_tokens: 2 } }))
  }
}

export async function startServer(
  script: (asked: Asked, n: number) => Reply | Promise<Reply>,
  keep = true,
): Promise<ScriptedServer> {
  let n = 0
  let running = 0
  const server = createServer(async (request, response) => {
    result.peak = Math.max(result.peak, ++running)
    const asked = parse(await readBody(request), request)
    if (keep) result.asked.push(asked)
    const reply = await script(asked, n++)
    running--
    send(response, reply)
  })
  server.keepAliveTimeout = 0 // a test that computes for seconds would find its connections closed
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve())
      server.closeAllConnections()
    })
  const result: ScriptedServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    asked: [],
    peak: 0,
    close,
  }
  return result
}

const colours = ['red', 'blue', 'green', 'black', 'white', 'yellow']
const things = ['bicycle', 'dog', 'car', 'bird', 'table', 'truck']
const parts = ['seat', 'collar', 'door', 'wing', 'leg', 'wheel']
const wordsOf = (text: string): string[] => text.toLowerCase().match(/[\p{L}]+/gu) ?? []

/** The colour word before a noun, of a text such as "a red bicycle with a black seat". */
function colourOf(text: string, noun: string): string | undefined {
  const words = wordsOf(text)
  const at = words.indexOf(noun)
  return colours.find((c) => c === words[at - 1])
}

function checklistOf(text: string): string {
  const words = wordsOf(text)
  const object = things.find((t) => words.includes(t)) ?? 'thing'
  const stated = [object, ...parts.filter((p) => words.includes(p))].filter((noun) => colourOf(text, noun))
  return JSON.stringify({
    object,
    plural: false,
    positives: stated.map((noun) => ({
      part: noun === object ? null : noun,
      attribute: 'colour',
      value: colourOf(text, noun),
    })),
    negatives: parts
      .filter((p) => !words.includes(p))
      .slice(0, 2)
      .map((name) => ({ name, plural: false, kind: 'part' })),
  })
}

function optionWith(block: string, pattern: RegExp): string {
  return block.split('\n').find((line) => /^[A-E]\. /.test(line) && pattern.test(line))?.[0] ?? '?'
}

/** The right letter for one question, from the words of the text alone. */
function answerBlock(text: string, block: string): string {
  const words = wordsOf(text)
  const positive = /say of the colour of the (\w+)\?/.exec(block)?.[1]
  const negative = /speak of the (\w+)\?/.exec(block)?.[1]
  if (positive) {
    const value = /is "(\w+)", or means/.exec(block)?.[1]
    if (!words.includes(positive)) return optionWith(block, /does not mention/)
    const colour = colourOf(text, positive)
    return optionWith(
      block,
      colour === undefined ? /says nothing/ : colour === value ? /or means the same/ : /that is not/,
    )
  }
  if (negative) return optionWith(block, words.includes(negative) ? /as something that is there/ : /does not mention/)
  const object = /be an? (\w+), or something/.exec(block)?.[1]
  return optionWith(block, object && words.includes(object) ? /Yes/ : /No/)
}

/** Answers every kind of request from the fenced text, and never does what it says. */
export function honest(asked: Asked): string {
  const { text, user } = asked
  if (user.includes('Fill in this JSON')) return checklistOf(text)
  if (user.includes('Second text:')) return '7'
  const blocks = user.split(/^Question \d+: /m).slice(1)
  const after = user.slice(user.lastIndexOf(text) + text.length)
  return blocks.length > 0 ? JSON.stringify(blocks.map((b) => answerBlock(text, b))) : answerBlock(text, after)
}
