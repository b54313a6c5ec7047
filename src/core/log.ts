import { isatty } from 'node:tty'

/** Messages below this level are not printed. */
export type LogLevel = 'debug' | 'info' | 'warn' | 'error'

const rank: Record<LogLevel, number> = { debug: 0, info: 1, warn: 2, error: 3 }
const threshold = rank[(process.env.ROUNDTRIP_LOG as LogLevel | undefined) ?? 'info'] ?? 1

/**
 * Text from a dataset, a model or a server for a terminal. Control characters could move the cursor or reverse text: they are
 * spelled out.
 */
export function spellControls(text: string): string {
  const hex = (char: string) => char.charCodeAt(0).toString(16)
  const spelled = (char: string) => (char > '\u00ff' ? `\\u${hex(char)}` : `\\x${hex(char).padStart(2, '0')}`)
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, spelled)
}

/** The same for a message: further lines are indented, so that none looks like another message. */
export const printable = (text: string): string => spellControls(text).replace(/\n(?=.)/g, '\n  ')

/** On a terminal another thread may have drawn a status line there: it is cleared first. */
export function messageLine(level: LogLevel, text: string, terminal: boolean): string {
  const head = level === 'info' ? '' : `${level}: `
  return `${terminal ? '\r\u001b[K' : ''}${head}${printable(text)}\n`
}

function write(level: LogLevel, text: string): void {
  if (rank[level] >= threshold) process.stderr.write(messageLine(level, text, isatty(2)))
}

/** Messages for people, on standard error; results go to standard output. */
export const log = {
  debug: (text: string) => write('debug', text),
  info: (text: string) => write('info', text),
  warn: (text: string) => write('warn', text),
  error: (text: string) => write('error', text),
}
