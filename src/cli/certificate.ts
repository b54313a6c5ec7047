// `verify --against python`: a model folder computed here and by the public Python code, as one table.
import { writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { log, modelFolder } from '../core/index.ts'
import type { Comparison, PythonVersions, Quantities, Scratch } from '../verify/index.ts'
import { aligned, exponential } from './table.ts'

export interface CertificateOptions {
  model: string
  reference?: string
  layers?: number
  seed?: number
  python?: string
  trustRemoteCode?: boolean
  device: string
  kernels: 'auto' | 'off'
}

export interface Certificate extends Comparison {
  pass: boolean
  model: string
  /** The folder that Python read. */
  reference: string
  python: PythonVersions & { class: string }
  notCompared: string[]
}

const newTokens = 16

export async function certify(options: CertificateOptions): Promise<Certificate> {
  const { Scratch } = await import('../verify/index.ts')
  const given = options.python ?? process.env.ROUNDTRIP_PYTHON ?? 'python3'
  const python = given.includes('/') ? resolve(given) : given // it is started in another folder
  return Scratch.use(python, (scratch) => compare(scratch, options))
}

async function compare(scratch: Scratch, options: CertificateOptions): Promise<Certificate> {
  const verify = await import('../verify/index.ts')
  const { trustRemoteCode = false, device, kernels, seed = 0, layers = 0 } = options
  const model = resolve(modelFolder(options.model))
  const reference = options.reference === undefined ? model : resolve(modelFolder(options.reference))
  const family = verify.subjectFamily(reference)
  const versions = await scratch.versions()
  const missing = verify.missingInPython(reference, family, versions, trustRemoteCode)
  const grpo = missing.grpo ? null : verify.trlSettings()
  const image = /qwen/.test(family)
  const asked = { model, reference, family, image, device, seed, layers, newTokens, trustRemoteCode, grpo }
  writeFileSync(join(scratch.folder, 'request.json'), JSON.stringify({ ...asked, adapter: !missing.adapter }))
  log.info(`${reference}: computing in Python`)
  const answer = await scratch.run(scratch.folder)
  log.info(`${model}: computing here`)
  const { runInEngineThread } = await import('../engine/index.ts')
  const dir = layers ? join(scratch.folder, 'model') : model
  const work: OwnWork = { dir, scratch: scratch.folder, device, kernels }
  const own = (await runInEngineThread(import.meta.url, 'ownQuantities', work)) as Quantities
  const compared = verify.compareWithPython(own, verify.readReference(join(scratch.folder, 'python.safetensors')))
  const pass = compared.rows.every((row) => row.pass)
  const notCompared = Object.values(missing).flat()
  return { pass, model, reference, python: { ...versions, class: String(answer.class) }, ...compared, notCompared }
}

type OwnWork = Pick<CertificateOptions, 'device' | 'kernels'> & { dir: string; scratch: string }

/** Runs in the engine thread. */
export async function ownQuantities({ dir, scratch, device, kernels }: OwnWork): Promise<Quantities> {
  const { computeOwn, useDevice } = await import('../verify/index.ts')
  const { useKernels } = await import('../kernels/index.ts')
  useDevice(device)
  useKernels(kernels)
  return computeOwn(dir, scratch, newTokens)
}

/** The table of a certificate. */
export function certificatePage({ python, rows, pass, ...rest }: Certificate): string {
  const { model, reference, notCompared, firstDifference } = rest
  const { class: name, ...versions } = python
  const packages = Object.entries(versions).flatMap(([key, version]) => (version ? [`${key} ${version}`] : []))
  const head = ['quantity', 'largest difference', 'tolerance', "Python's own", 'here', 'Python', '']
  const cells = rows.map((row) => {
    const { difference, tolerance, pythonError, dtypes } = row
    const verdict = row.pass ? 'pass' : `FAIL${row.detail ? `  ${row.detail}` : ''}`
    return [row.name, ...[difference, tolerance, pythonError].map(exponential), dtypes.own, dtypes.python, verdict]
  })
  const failed = rows.filter((row) => !row.pass).length
  return [
    `${model} against ${name} of ${packages.join(', ')}${reference === model ? '' : ` reading ${reference}`}`,
    aligned([head, ...cells], { indent: '  ', right: [1, 2, 3] }),
    ...notCompared.map((what) => `not compared: ${what}`),
    ...(firstDifference ? [`first difference: ${firstDifference}`] : []),
    `${pass ? 'PASS' : 'FAIL'}: ${rows.length} quantities, ${failed} outside their tolerance`,
  ].join('\n')
}
