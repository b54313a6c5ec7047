/** The addon's stores and groups of processes (native/collectives.cc). Ids are small integers; tensors travel in the shared buffer. */
export interface NativeCollectives {
  fileStore(path: string, size: number, prefix: string, timeoutMs: number): Promise<number>
  tcpStore(host: string, port: number, server: number, size: number, prefix: string, timeoutMs: number): Promise<number>
  storeSet(store: number, key: string, value: string): Promise<void>
  storeGet(store: number, key: string): Promise<string | null>
  storeBeat(store: number, key: string, text: string, everyMs: number): void
  storeClose(store: number): void
  groupOpen(
    store: number,
    backend: 'gloo' | 'nccl',
    rank: number,
    size: number,
    address: string,
    timeoutMs: number,
  ): Promise<number>
  /** buffer = 1, handle */
  groupAllReduce(group: number, how: 'sum' | 'max'): Promise<void>
  /** buffer = 1, handle */
  groupBroadcast(group: number, root: number): Promise<void>
  /** buffer = 1 + size, input, outputs by rank */
  groupAllGather(group: number): Promise<void>
  groupAbort(group: number): void
  groupClose(group: number): Promise<void>
  /** Transports of this build, separated by spaces. */
  groupBackends(): string
  groupDevice(index: number): void
}
