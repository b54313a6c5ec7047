// Runs assets/python/reference.py in the user's Python: isolated, offline, without secrets, and with nothing left on the disk.
import { type ChildProcess, spawn } from 'node:child_process'
import { rmSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import {
  isObject,
  Mismatch,
  messageOf,
  packageRoot,
  readJsonObject,
  temporaryFolder,
  tryJsonObject,
} from '../core/index.ts'

/** Versions of the packages; null: not installed. */
export type PythonVersions = Record<'torch' | 'transformers' | 'peft' | 'trl', string | null>

/** The first version of transformers with both Qwen2.5-VL and Qwen3-VL, and the first TRL whose trainer has the same loss function. */
const oldest = { transformers: '4.57', trl: '1.0' } as const

/** A temporary folder and the Python that works in it. */
export class Scratch {
  readonly folder = temporaryFolder('verify')
  readonly #python: string
  #child: ChildProcess | undefined

  constructor(python: string) {
    this.#python = python
  }

  /** Runs `work`; folder and process are removed at its end, also after Ctrl-C. */
  static async use<T>(python: string, work: (scratch: Scratch) => Promise<T>): Promise<T> {
    const scratch = new Scratch(python)
    const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
    const end = (name: NodeJS.Signals) => {
      void scratch.close().then(() => process.exit(128 + constants.signals[name]))
    }
    for (const name of signals) process.on(name, end)
    try {
      return await work(scratch)
    } finally {
      await scratch.close()
      for (const name of signals) process.off(name, end)
    }
  }

  async close(): Promise<void> {
    const child = this.#child
    if (child && child.exitCode === null && child.signalCode === null) {
      const closed = new Promise((done) => child.once('close', done))
      child.kill('SIGKILL')
      await closed
    }
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 })
  }

  /** Versions of what the Python has, after a check that it can compute the reference. */
  async versions(): Promise<PythonVersions> {
    const found = (await this.run('probe')) as PythonVersions
    const absent = (['torch', 'transformers'] as const).filter((name) => !found[name])
    const hint = `${this.#python} -m pip install torch transformers peft trl, or name another Python with --python`
    if (absent.length > 0) throw this.#mismatch('torch and transformers', `no ${absent.join(', no ')}`, hint)
    if (isOlder(found.transformers!, oldest.transformers))
      throw this.#mismatch(`transformers ${oldest.transformers} or newer`, found.transformers!, hint)
    return found
  }

  /** What the script prints at its end. */
  async run(argument: string): Promise<Record<string, unknown>> {
    const script = join(packageRoot(), 'assets', 'python', 'reference.py')
    const child = spawn(this.#python, ['-I', '-B', script, argument], {
      cwd: this.folder,
      env: environment(this.folder),
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.#child = child
    const [out, errors] = [child.stdout, child.stderr].map(tailOf) as [() => string, () => string]
    const status = await new Promise<string | null>((done) => {
      child.on('error', (error) => done(messageOf(error)))
      child.on('close', (code, signal) => done(code === 0 ? null : signal ? `an end by ${signal}` : lastLine(errors())))
    })
    if (status === null) return this.#answer(lastLine(out()))
    const absent = (status.includes('ENOENT') || status.includes('EACCES')) && child.pid === undefined
    if (absent) throw this.#mismatch('a Python with torch and transformers', 'no program that can be started', findHint)
    const hint = status.includes('SIGKILL') ? 'memory may be short: --layers N compares the first layers' : undefined
    throw this.#mismatch('the reference computed by the public Python code', status || 'an end without a message', hint)
  }

  #answer(text: string): Record<string, unknown> {
    const answer = tryJsonObject(text)
    if (answer) return answer
    throw this.#mismatch('a Python 3', `a program that prints ${text.slice(0, 80) || 'nothing'}`, findHint)
  }

  #mismatch(expected: string, got: string, hint?: string): Mismatch {
    return new Mismatch({ where: this.#python, expected, got: got.slice(0, 400), ...(hint && { hint }) })
  }
}

const findHint = 'name one with --python PATH or ROUNDTRIP_PYTHON; the default is python3'

/** What of a folder is not compared, and why. */
export function missingInPython(
  dir: string,
  family: string,
  { peft, trl }: PythonVersions,
  trustRemoteCode: boolean,
): { parts: string[]; adapter?: string; grpo?: string } {
  const grounded = family.startsWith('sa2va-') ? ['text_hidden_fcs', 'grounding_encoder (SAM2)'] : []
  const vision = family === 'sa2va-internvl' ? ['vision_model', 'mlp1'] : ['image preprocessing']
  const parts = family === 'language' ? ['generated ids (the folder has no tokenizer)'] : [...vision, ...grounded]
  const llm = readJsonObject(join(dir, 'config.json')).llm_config
  const packed = isObject(llm) && llm.model_type === 'internlm2' && !trustRemoteCode
  const asLlama = packed ? 'InternLM2 is read as Llama without --trust-remote-code' : null
  const noPeft = peft ? asLlama : 'PEFT is not installed'
  const old = trl && isOlder(trl, oldest.trl) ? `TRL ${trl} is older than ${oldest.trl}` : null
  const noTrl = trl ? (old ?? noPeft) : 'TRL is not installed'
  return {
    parts,
    ...(noPeft && { adapter: `gradient of the adapters: ${noPeft}` }),
    ...(noTrl && { grpo: `one GRPO step: ${noTrl}` }),
  }
}

function isOlder(version: string, than: string): boolean {
  const [a, b] = [version, than].map((text) => text.split('.').map((part) => Number.parseInt(part, 10) || 0))
  const at = b!.findIndex((part, i) => part !== (a![i] ?? 0))
  return at >= 0 && (a![at] ?? 0) < b![at]!
}

const inherited = ['PATH', 'HOME', 'LANG', 'LD_LIBRARY_PATH', 'CUDA_VISIBLE_DEVICES', 'OMP_NUM_THREADS'] as const

/** Caches and temporary files go to the folder; tokens and proxies are not passed on. */
function environment(folder: string): NodeJS.ProcessEnv {
  const own = Object.fromEntries(inherited.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : [])))
  const offline = ['HF_HUB_OFFLINE', 'TRANSFORMERS_OFFLINE', 'HF_DATASETS_OFFLINE', 'HF_HUB_DISABLE_TELEMETRY']
  return { ...own, ...Object.fromEntries(offline.map((name) => [name, '1'])), HF_HOME: folder, TMPDIR: folder }
}

/** Reads a stream of any length; gives its last characters. */
function tailOf(stream: Readable): () => string {
  let tail = ''
  stream.setEncoding('utf8').on('data', (text: string) => {
    tail = (tail + text).slice(-8192)
  })
  return () => tail
}

const lastLine = (text: string): string => /[^\r\n]*$/.exec(text.trim())![0].trim()
