// Training work runs in one thread that owns the addon; the main thread keeps the terminal, HTTP and judge calls.
import { parentPort, Worker } from 'node:worker_threads'
import { Mismatch } from '../core/index.ts'
import { prepareEnvironment } from './environment.ts'

/** What the function in the engine thread gets besides its input. */
export interface EnginePort {
  /** Sends a message to the main thread; there is no reply. */
  send(message: unknown): void
  /** Asks main and waits for its answer: a judge call, a file dialog, anything that must not block the engine. */
  ask(message: unknown): Promise<unknown>
  /** Called with each control message of main ('stop' for an aborted signal), as soon as the thread yields. */
  onControl(listen: (message: unknown) => void): void
  /** Yields once, so that answers and controls can arrive between two steps. */
  breathe(): Promise<void>
}

export interface EngineThreadOptions {
  /** Gets what the thread sends and asks; its result, awaited, is the answer to a question. */
  onMessage?(message: unknown): unknown
  /** Called at the start with a function that sends control messages to the thread. */
  onStart?(control: (message: unknown) => void): void
  /** An abort reaches the thread as the control message 'stop': the work ends at its own next safe point. */
  signal?: AbortSignal
}

interface ThrownError {
  name: string
  message: string
  stack: string | undefined
  fields: Record<string, unknown>
}
type FromThread =
  | { kind: 'send'; message: unknown }
  | { kind: 'ask'; id: number; message: unknown }
  | { kind: 'done'; result: unknown }
  | { kind: 'failed'; error: ThrownError }
type ToThread =
  | { kind: 'answer'; id: number; result: unknown }
  | { kind: 'refusal'; id: number; error: ThrownError }
  | { kind: 'control'; message: unknown }

interface Task {
  module: string
  exportName: string
  input: unknown
}

/** Errors cross threads as plain data: name, message, stack, and the fields that can be copied. */
function pack(error: unknown): ThrownError {
  if (!(error instanceof Error)) return { name: 'Error', message: String(error), stack: undefined, fields: {} }
  const fields: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(error)) if (isPlain(value)) fields[key] = value
  return { name: error.name, message: error.message, stack: error.stack, fields }
}

function isPlain(value: unknown): boolean {
  try {
    structuredClone(value)
    return true
  } catch {
    return false
  }
}

function unpack({ name, message, stack, fields }: ThrownError): Error {
  const error = Object.assign(new Error(message), fields)
  Object.defineProperty(error, 'name', { value: name, configurable: true })
  if (stack !== undefined) error.stack = stack
  return error
}

/** Runs from sources too: hooks registered in the main thread do not reach a worker, which then loads TypeScript itself. */
function startWorker(task: Task): Worker {
  const own = import.meta.url
  const fromSources = [own, task.module].some((url) => url.endsWith('.ts'))
  const loader = fromSources ? import.meta.resolve('tsx/esm/api') : null
  const code = `(async () => {
    if (${JSON.stringify(loader)}) (await import(${JSON.stringify(loader)})).register()
    const { serveEngineThread } = await import(${JSON.stringify(own)})
    await serveEngineThread(require('node:worker_threads').workerData)
  })()`
  // the thread has no command line; environment.json has the one the run was started with
  const resourceLimits = { maxYoungGenerationSizeMb: 96 } // a step makes much that ends with it: what is collected later is less to copy
  return new Worker(code, { eval: true, execArgv: [], argv: process.argv.slice(2), workerData: task, resourceLimits })
}

/**
 * Runs `export(input, port)` of a module in a new thread that may use the engine, and gives its result. Input, messages and result
 * are copied. The promise settles after the thread has ended, so that the engine is free for the next one.
 */
export function runInEngineThread(
  module: URL | string,
  exportName: string,
  input: unknown,
  options: EngineThreadOptions = {},
): Promise<unknown> {
  prepareEnvironment()
  const worker = startWorker({ module: String(module), exportName, input })
  return new Promise((resolve, reject) => {
    let settle = (code: number) => reject(endedEarly(String(module), exportName, code))
    let ended = false
    let listening = Promise.resolve() // a listener still at work may fail the run; an answer nobody waits for must not delay it
    const end = (how: () => void) => {
      if (ended) return // the first end is the one reported: a result on its way must not hide a listener's failure
      ended = true
      settle = how
      void worker.terminate()
    }
    const post = (message: ToThread) => worker.postMessage(message)
    const stop = () => post({ kind: 'control', message: 'stop' })
    worker.on('message', (message: FromThread) => {
      if (message.kind === 'done') void listening.then(() => end(() => resolve(message.result)))
      else if (message.kind === 'failed') void listening.then(() => end(() => reject(unpack(message.error))))
      else {
        const receiving = receive(message, options, post).catch((error: unknown) => end(() => reject(error)))
        if (message.kind === 'send') listening = listening.then(() => receiving)
      }
    })
    worker.on('error', (error) => {
      if (!ended) settle = () => reject(error)
    })
    worker.on('exit', (code) => {
      options.signal?.removeEventListener('abort', stop)
      settle(code)
    })
    options.signal?.addEventListener('abort', stop)
    if (options.signal?.aborted) stop()
    options.onStart?.((message) => post({ kind: 'control', message }))
  })
}

function endedEarly(module: string, exportName: string, code: number): Mismatch {
  const where = `${module}: ${exportName}`
  return new Mismatch({ where, expected: 'a result', got: `the engine thread ended with code ${code}` })
}

/** A failing listener of `send` fails the run; a failing answer is the asker's to handle. */
async function receive(
  message: Extract<FromThread, { kind: 'send' | 'ask' }>,
  options: EngineThreadOptions,
  post: (message: ToThread) => void,
): Promise<void> {
  if (message.kind === 'send') {
    await options.onMessage?.(message.message)
    return
  }
  const { id } = message
  try {
    if (!options.onMessage)
      throw new Mismatch({ where: 'runInEngineThread', field: 'onMessage', expected: 'a listener', got: 'none' })
    post({ kind: 'answer', id, result: await options.onMessage(message.message) })
  } catch (error) {
    post({ kind: 'refusal', id, error: pack(error) })
  }
}

/** The thread's side; started by the line of code above. */
export async function serveEngineThread({ module, exportName, input }: Task): Promise<void> {
  const main = parentPort!
  const post = (message: FromThread) => main.postMessage(message)
  const port = openPort(post)
  try {
    const found = (await import(module)) as Record<string, unknown>
    const work = found[exportName]
    if (typeof work !== 'function') {
      const got = Object.keys(found).join(', ') || 'no exports'
      throw new Mismatch({ where: module, field: exportName, expected: 'an exported function', got })
    }
    post({ kind: 'done', result: await work(input, port) })
  } catch (error) {
    post({ kind: 'failed', error: pack(error) })
  }
}

function openPort(post: (message: FromThread) => void): EnginePort {
  const waiting = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>()
  const listeners: ((message: unknown) => void)[] = []
  const early: unknown[] = [] // controls that came before anybody listened
  let next = 0
  parentPort!.on('message', (message: ToThread) => {
    if (message.kind === 'control') {
      if (listeners.length === 0) early.push(message.message)
      for (const listen of listeners) listen(message.message)
      return
    }
    const asker = waiting.get(message.id)
    waiting.delete(message.id)
    if (message.kind === 'answer') asker?.resolve(message.result)
    else asker?.reject(unpack(message.error))
  })
  return {
    send: (message) => post({ kind: 'send', message }),
    ask: (message) =>
      new Promise((resolve, reject) => {
        const id = next++
        waiting.set(id, { resolve, reject })
        post({ kind: 'ask', id, message })
      }),
    onControl(listen) {
      listeners.push(listen)
      for (const message of early.splice(0)) listen(message)
    },
    breathe: () => new Promise((resolve) => setImmediate(resolve)),
  }
}
