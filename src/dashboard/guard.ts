// Who may ask: pages of this server alone, by a name of this machine, with the token where one is asked for.
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { hostname, networkInterfaces } from 'node:os'
import type { Context, MiddlewareHandler } from 'hono'
import { getCookie, setCookie } from 'hono/cookie'
import { Mismatch } from '../core/index.ts'

/** Scripts, styles, pictures and answers of this server and nothing else; no frames, no forms, no other base. */
export const contentPolicy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const headers: Record<string, string> = {
  'Content-Security-Policy': contentPolicy,
  'X-Content-Type-Options': 'nosniff',
  'X-Frame-Options': 'DENY',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cross-Origin-Opener-Policy': 'same-origin',
}

const loopbackNames = ['localhost', '127.0.0.1', '[::1]']

export function isLoopback(address: string): boolean {
  return address === 'localhost' || address === '::1' || /^127(\.\d{1,3}){3}$/.test(address)
}

const bracketed = (address: string) => (address.includes(':') ? `[${address}]` : address)

/** Host names that requests to a server at `address` may have; any port is fine, as a tunnel changes it. */
export function allowedNames(address: string): Set<string> {
  if (isLoopback(address)) return new Set([...loopbackNames, bracketed(address)])
  if (address !== '0.0.0.0' && address !== '::') return new Set([bracketed(address).toLowerCase()])
  const own = Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map((item) => bracketed(item.address)))
  return new Set([...loopbackNames, hostname().toLowerCase(), ...own])
}

const nameOf = (host: string) => host.replace(/:\d*$/, '').toLowerCase()

/** Shorter ones can be guessed, and an empty one is usually an unset variable of a script. */
const minTokenLength = 16

export function requireToken(token: string | undefined): void {
  if (token === undefined || token.length >= minTokenLength) return
  const hint = 'leave --token out for a new one'
  const got = token === '' ? 'an empty text' : `${token.length}`
  throw new Mismatch({ where: 'watch', field: '--token', expected: `at least ${minTokenLength} characters`, got, hint })
}

/** A browser sends the cookies of a host to all its ports: each page has its own name, and none holds the token. */
const cookieName = (host: string) => `roundtrip_watch_${/:(\d+)$/.exec(host)?.[1] ?? '80'}`

export interface GuardOptions {
  address: string
  /** Absent: everyone who reaches the server may look, which is for loopback alone. */
  token?: string
}

function sameText(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)]
  return left.length === right.length && timingSafeEqual(left, right)
}

/** True: the request has the token in its header, or the cookie that this server gave for it. */
function isAdmitted(c: Context, token: string, session: string): boolean {
  const [scheme, sent] = (c.req.header('authorization') ?? '').split(' ')
  if (scheme === 'Bearer' && sent && sameText(sent, token)) return true
  return sameText(getCookie(c, cookieName(c.req.header('host') ?? '')) ?? '', session)
}

/** What the cookie holds: it opens this server alone, until it ends, and the token cannot be computed from it. */
const sessionOf = (token: string) => createHmac('sha256', randomBytes(32)).update(token).digest('base64url')

export function guard({ address, token }: GuardOptions): MiddlewareHandler {
  requireToken(token)
  const session = sessionOf(token ?? '')
  const names = allowedNames(address)
  return async (c, next) => {
    for (const [name, value] of Object.entries(headers)) c.header(name, value)
    c.header('Cache-Control', 'no-store')
    const host = c.req.header('host') ?? ''
    if (!names.has(nameOf(host))) return c.text('this server is not asked by that name', 403)
    const origin = c.req.header('origin')
    const isOwn = (url: string) => URL.canParse(url) && new URL(url).host === host.toLowerCase() && /^https?:/.test(url)
    if (origin !== undefined && !isOwn(origin)) return c.text('not for pages of other sites', 403)
    const site = c.req.header('sec-fetch-site')
    if ((site === 'cross-site' || site === 'same-site') && c.req.path !== '/')
      return c.text('not for pages of other sites', 403)
    if (c.req.method !== 'GET' && c.req.method !== 'HEAD') return c.text('this server only shows', 405)
    if (token !== undefined) {
      const sent = c.req.query('token')
      if (c.req.path === '/' && sent !== undefined && sameText(sent, token)) {
        setCookie(c, cookieName(host), session, { httpOnly: true, sameSite: 'Strict', path: '/' })
        return c.redirect('/', 303)
      }
      if (!isAdmitted(c, token, session))
        return c.text('open the address with its token, as the command printed it', 401)
    }
    await next()
  }
}
