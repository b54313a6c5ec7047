import { Command } from 'commander'
import { humanBytes, isHubId, log, Mismatch } from '../core/index.ts'

interface Options {
  dataset?: boolean
  revision: string
}

export function command(): Command {
  return new Command('pull')
    .description(
      'download a model or a dataset into the Hugging Face cache, where --model ORG/NAME and --data ORG/NAME find it',
    )
    .argument('<id>', 'ORG/NAME')
    .option('--dataset', 'a dataset instead of a model')
    .option('--revision <name>', 'branch, tag or commit', 'main')
    .action(run)
}

async function run(id: string, { dataset, revision }: Options): Promise<void> {
  if (!isHubId(id)) throw new Mismatch({ where: 'pull', field: 'id', expected: 'ORG/NAME', got: id })
  if (!/^[\w.-]+(?:\/[\w.-]+)*$/.test(revision) || revision.split('/').some((part) => /^\.+$/.test(part)))
    throw new Mismatch({ where: 'pull', field: '--revision', expected: 'a branch, tag or commit', got: revision })
  const { pullRepository } = await import('./hub-client.ts')
  const kind = dataset ? 'datasets' : 'models'
  const folder = await pullRepository({ kind, id, revision, ...hub(), onProgress: progress(id) })
  process.stdout.write(`${folder}\n`)
}

/** A token is sent in the clear to this machine only. */
function hub(): { endpoint: string; token: string | null } {
  const text = process.env.HF_ENDPOINT || 'https://huggingface.co'
  const fail = (got: string, expected: string) => new Mismatch({ where: 'HF_ENDPOINT', expected, got })
  const url = URL.canParse(text) ? new URL(text) : null
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password)
    throw fail('another text, which is not shown', 'an address such as https://huggingface.co')
  const token = process.env.HF_TOKEN?.trim() || null
  const isHere = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname)
  if (token && url.protocol === 'http:' && !isHere) throw fail(url.origin, 'https if HF_TOKEN is set')
  return { endpoint: `${url.origin}${url.pathname}`.replace(/\/+$/, ''), token }
}

/** A line for each twentieth of all bytes. */
function progress(id: string): (done: number, total: number, file: string) => void {
  let shown = -1
  return (done, total, file) => {
    const part = total === 0 ? 20 : Math.floor((20 * done) / total)
    if (part === shown) return
    shown = part
    log.info(`${id}: ${5 * part} % of ${humanBytes(total)}, ${file}`)
  }
}
