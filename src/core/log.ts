export type LogLevel = 'debug' | 'info' | 'warn' | 'error'

const rank: Record<LogLevel, number> = { debug: 0, info: 1, warn: 2, error: 3 }
const threshold = rank[(process.env.ROUNDTRIP_LOG as LogLevel | undefined) ?? 'info'] ?? 1

function write(level: LogLevel, text: string): void {
  if (rank[level] >= threshold) process.stderr.write(level === 'info' ? `${text}\n` : `${level}: ${text}\n`)
}

/** Messages for people, on standard error; results go to standard output. */
export const log = {
  debug: (text: string) => write('debug', text),
  info: (text: string) => write('info', text),
  warn: (text: string) => write('warn', text),
  error: (text: string) => write('error', text),
}
