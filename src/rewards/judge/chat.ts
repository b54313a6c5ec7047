// One POST to an OpenAI-compatible server. A redirect is never followed, because it would carry the key to another host.
import { readBody, tryJsonObject } from '../../core/index.ts'

/** The judge gave no usable reply. `fatal` means that asking again cannot help. */
export class JudgeFailure extends Error {
  readonly status: number | undefined
  readonly fatal: boolean
  readonly retryAfterMs: number | undefined

  constructor(message: string, info: { status?: number; fatal?: boolean; retryAfterMs?: number } = {}) {
    super(message)
    this.name = 'JudgeFailure'
    this.status = info.status
    this.fatal = info.fatal ?? false
    this.retryAfterMs = info.retryAfterMs
  }
}

/** Statuses below 500 that may pass. */
const passing = new Set([408, 409, 425, 429])
/** A chat reply has a few kilobytes. */
const maxReplyBytes = 1 << 20

/** The parsed reply; a JudgeFailure, or the error of fetch or of the parser. */
export async function postChat(
  { baseUrl, key }: { baseUrl: string; key: string },
  body: unknown,
  signal: AbortSignal,
): Promise<unknown> {
  const reply = await fetch(`${baseUrl.replace(/\/+$/, '')}/chat/completions`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json', Accept: 'application/json' },
    body: JSON.stringify(body),
    redirect: 'manual',
    signal,
  })
  const { text, whole } = await readBody(reply, maxReplyBytes)
  if (!reply.ok) throw refusalOf(reply, text)
  if (!whole) throw new JudgeFailure(`reply of more than ${maxReplyBytes} bytes`)
  return JSON.parse(text)
}

function refusalOf({ status, headers }: Response, text: string): JudgeFailure {
  if (status < 400) {
    const target = headers.get('location') ?? 'nowhere'
    return new JudgeFailure(`redirected to ${target}; redirects are not followed`, { status, fatal: true })
  }
  const fatal = status < 500 && !passing.has(status)
  return new JudgeFailure(`${status} ${messageIn(text)}`, { status, fatal, retryAfterMs: retryAfter(headers) })
}

/** `error.message` of OpenAI's form, or the text itself, such as the page of a proxy. */
function messageIn(text: string): string {
  const error = tryJsonObject(text)?.error as { message?: unknown } | null | undefined
  return typeof error?.message === 'string' ? error.message : text
}

function retryAfter(headers: Headers): number | undefined {
  const value = headers.get('retry-after')
  if (!value) return undefined
  const seconds = Number(value)
  const ms = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(value) - Date.now()
  return Number.isFinite(ms) ? Math.max(0, ms) : undefined
}
