import { native } from '../engine/index.ts'

export function threads(): number {
  return native().threads()
}

/** Threads of ATen and of OpenBLAS, which keeps its own count. */
export function setThreads(n: number): void {
  native().threads(n)
}
