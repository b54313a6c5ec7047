import { Mismatch } from './errors.ts'

/** What a download leaves in place of a file: a Git-LFS pointer, a page of a web server, nothing; null for other bytes. */
export function failedDownload(head: Uint8Array): { got: string; hint: string } | null {
  const text = Buffer.from(head.buffer, head.byteOffset, Math.min(head.byteLength, 512)).toString('latin1')
  if (text === '') return { got: 'a file of 0 bytes', hint: 'the download was interrupted; fetch the file again' }
  if (text.startsWith('version https://git-lfs')) {
    const hint = 'run `git lfs pull` in that folder, or download the file itself'
    return { got: 'a Git LFS pointer file', hint }
  }
  if (/^\s*<(?:!doctype html|html|head|body|\?xml)/i.test(text)) {
    const hint = 'the address asked for a login or was wrong; download the file itself'
    return { got: 'a web page (HTML)', hint }
  }
  return null
}

/** Refuses such a file by what it is, not by the first field that does not fit. */
export function refuseFailedDownload(head: Uint8Array, where: string, expected: string): void {
  const found = failedDownload(head)
  if (found) throw new Mismatch({ where, expected, ...found })
}
