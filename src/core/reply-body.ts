import { withoutMark } from './regular-file.ts'

/** The first `limit` bytes of a reply, decompressed; `whole` is false when there were more, which are not read. */
export async function readBody(reply: Response, limit: number): Promise<{ text: string; whole: boolean }> {
  const parts: Uint8Array[] = []
  let size = 0
  for await (const part of reply.body ?? []) {
    parts.push(part)
    size += part.length
    if (size > limit) break // leaving the loop cancels the rest
  }
  const bytes = Buffer.concat(parts).subarray(0, limit)
  return { text: withoutMark(bytes.toString('utf8')), whole: size <= limit }
}
