/** Shorter keys (`1`, `x`, `EMPTY`) are dummies for local servers: removing them would damage ordinary text. */
export const minSecretLength = 8

const lower = (text: string) => text.replace(/[A-Z]/g, (c) => c.toLowerCase())

/** Base64 of the secret wherever it starts in a longer text; letters that depend on its neighbours are left out. */
function base64Forms(bytes: Buffer): string[] {
  const padded = [0, 1, 2].map((before) => Buffer.concat([Buffer.alloc(before), bytes]).toString('base64'))
  const inner = padded.map((text, before) => text.replace(/=+$/, '').slice(before === 0 ? 0 : before + 1))
  return inner.flatMap((text) => [text, text.replaceAll('+', '-').replaceAll('/', '_')])
}

/** The ways in which a server may write back a secret that it was sent. */
function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret)
  return [
    secret,
    [...secret].reverse().join(''),
    JSON.stringify(secret).slice(1, -1),
    encodeURIComponent(secret),
    bytes.toString('hex'),
    ...base64Forms(bytes),
  ]
}

/**
 * Replaces secrets by `[key]`, for text that others may have written and that reaches a log or a file. Finds them in upper and
 * lower case, reversed, URL-encoded, in base64 and in hex, and any piece of them of 8 characters or more.
 */
export function redactor(secrets: readonly (string | undefined)[]): (text: string) => string {
  const pieces = new Set<string>()
  for (const secret of secrets) {
    if (secret === undefined || secret.length < minSecretLength) continue
    for (const form of formsOf(secret).map(lower))
      for (let at = 0; at + minSecretLength <= form.length; at++) pieces.add(form.slice(at, at + minSecretLength))
  }
  return pieces.size === 0 ? (text) => text : (text) => withoutPieces(text, pieces)
}

function withoutPieces(text: string, pieces: ReadonlySet<string>): string {
  const compared = lower(text)
  let out = ''
  let [kept, end] = [0, -1] // text before `kept` is written; a secret ends at `end`
  for (let at = 0; at + minSecretLength <= text.length; at++) {
    if (!pieces.has(compared.slice(at, at + minSecretLength))) continue
    if (at > end) out += `${text.slice(kept, at)}[key]`
    kept = end = at + minSecretLength
  }
  return out + text.slice(kept)
}
