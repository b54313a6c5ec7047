// Finds a libtorch by its files, without importing torch. A "torch" here is
// { kind, path, include: string[], lib, version, major, minor, cudaVersion, sites }.
import { existsSync, readdirSync, readFileSync, realpathSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { capture } from './progress.mjs'
import { chosenTorch, root } from './record.mjs'

export const triplet =
  { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' }[process.arch] ?? `${process.arch}-linux-gnu`
const oldest = [1, 13]
const neededHeaders = [
  'ATen/Tensor.h',
  'ATen/core/dispatch/Dispatcher.h',
  'c10/core/Device.h',
  'torch/csrc/autograd/autograd.h',
]
const neededLibraries = ['libc10.so', 'libtorch_cpu.so', 'libtorch.so']
const apiInclude = 'torch/csrc/api/include'

function headerVersion(include) {
  // newer torch keeps the numbers in headeronly/, and version.h only includes it
  const places = [join(include, 'torch/headeronly/version.h'), join(include, apiInclude, 'torch/version.h')]
  const text = readFileSync(
    places.find((p) => existsSync(p)),
    'utf8',
  )
  const part = (name) => Number(new RegExp(`#define TORCH_VERSION_${name} (\\d+)`).exec(text)?.[1] ?? 0)
  return [part('MAJOR'), part('MINOR'), part('PATCH')]
}

// version.py names the build ("2.11.0+cu130"); headers alone give the number
function namedVersion(path, numbers) {
  for (const file of ['version.py', 'build-version']) {
    const at = join(path, file)
    if (!existsSync(at)) continue
    const text = readFileSync(at, 'utf8')
    const name = file === 'version.py' ? /__version__\s*(?::[^=]*)?=\s*['"]([^'"]+)/.exec(text)?.[1] : text.trim()
    if (name?.startsWith(numbers.join('.'))) return name
  }
  return numbers.join('.')
}

function cudaOf(path) {
  const file = join(path, 'version.py')
  return existsSync(file)
    ? (/^cuda\s*(?::[^=]*)?=\s*['"]([^'"]+)/m.exec(readFileSync(file, 'utf8'))?.[1] ?? null)
    : null
}

/** The torch in a folder; `missing` names the first missing file. */
export function inspect(path, kind) {
  const base = existsSync(join(path, 'torch', 'include', 'ATen')) ? join(path, 'torch') : path
  const include = join(base, 'include')
  for (const header of [...neededHeaders, `${apiInclude}/torch/version.h`])
    if (!existsSync(join(include, header))) return { path: base, kind, missing: join(include, header) }
  const folders = ['lib', 'lib64', `lib/${triplet}`].map((name) => join(base, name))
  const lib = folders.find((folder) => neededLibraries.every((name) => existsSync(join(folder, name))))
  if (!lib) return { path: base, kind, missing: `${neededLibraries.join(', ')} in ${folders.join(' or ')}` }
  const numbers = headerVersion(include)
  const [major, minor] = numbers
  const version = namedVersion(base, numbers)
  if (major < oldest[0] || (major === oldest[0] && minor < oldest[1]))
    return { path: base, kind, missing: `a new enough version: ${version} found, ${oldest.join('.')} or newer needed` }
  return {
    kind,
    path: base,
    include: [include, join(include, apiInclude)],
    lib,
    version,
    major,
    minor,
    cudaVersion: cudaOf(base),
  }
}

// isolated (-I): no module of the current folder runs. User folders and PYTHONPATH are searched without running their modules
const question = `
import importlib.util, json, os, site, sys
own = [p for p in os.environ.get('PYTHONPATH', '').split(os.pathsep) if os.path.isabs(p)]
if sys.prefix == sys.base_prefix: own.append(site.getusersitepackages())
sys.path = own + sys.path # as Python itself orders them; what is needed here is imported already
try: spec = importlib.util.find_spec('torch')
except Exception: spec = None
where = list(spec.submodule_search_locations or []) if spec else []
sites = [p for p in sys.path if p.endswith(('site-packages', 'dist-packages'))]
print(json.dumps({'torch': where[0] if where else None, 'prefix': sys.prefix, 'sites': sites}))`

const inPath = (name, env) =>
  (env.PATH ?? '')
    .split(delimiter)
    .map((folder) => join(folder, name))
    .find((p) => existsSync(p))

/** Python interpreters in the order of a shell; none is run. */
export function pythons(env = process.env) {
  const active = [env.VIRTUAL_ENV, env.CONDA_PREFIX].filter(Boolean).map((folder) => join(folder, 'bin', 'python'))
  const found = [...active.filter((path) => existsSync(path)), inPath('python3', env), inPath('python', env)]
  return [...new Set(found.filter(Boolean))]
}

function ask(python) {
  const { ok, stdout } = capture(python, ['-I', '-c', question], { cwd: root })
  if (!ok) return null
  return JSON.parse(stdout.trim().split('\n').at(-1))
}

// conda splits the package: Python files in site-packages, headers and libraries below the prefix;
// Debian's package holds links into /usr, which is the system's libtorch
function atPython({ torch, prefix }) {
  const headers = join(torch, 'include', 'ATen')
  if (existsSync(headers) && realpathSync(headers) === '/usr/include/ATen') return [inspect('/usr', 'system')]
  return [inspect(torch, 'python'), inspect(prefix, prefix === '/usr' ? 'system' : 'python')]
}

/** The torches of the Pythons (complete or not), and the folders that a later pip would write to. */
function fromPython(env) {
  const torches = []
  const sites = []
  for (const python of pythons(env)) {
    const answer = ask(python)
    sites.push(...(answer?.sites ?? []))
    if (!answer?.torch) continue
    const candidates = atPython(answer)
    torches.push(candidates.find((torch) => !torch.missing) ?? candidates[0])
    if (!torches.at(-1).missing) break
  }
  return { torches, sites: [...new Set(sites)] }
}

const systemPrefixes = ['/usr', '/usr/local', '/usr/local/libtorch', '/opt/libtorch']

export function findSystem() {
  return systemPrefixes
    .filter((prefix) => existsSync(join(prefix, 'include', 'ATen')) || existsSync(join(prefix, 'include', 'c10')))
    .map((prefix) => inspect(prefix, 'system'))
}

/** All candidates in order, and `watch`: the search is repeated if one of these paths changes. */
export function findTorch(env = process.env) {
  const chosen = chosenTorch(env)
  if (chosen) return { chosen, candidates: [inspect(chosen, 'path')], watch: [chosen] }
  const python = fromPython(env)
  const watch = [...python.sites, ...systemPrefixes.map((prefix) => join(prefix, 'include', 'ATen'))]
  return { chosen: null, candidates: [...python.torches, ...findSystem()], watch }
}

const list = (folder) => (existsSync(folder) ? readdirSync(folder).sort() : [])

// folders of the wheels first: they have the version that torch was built with
function cudaFolders(torch, env) {
  const nvidia = join(dirname(torch.path), 'nvidia')
  const wheels = list(nvidia).map((name) => join(nvidia, name, 'include'))
  const major = torch.cudaVersion?.split('.')[0]
  const toolkits = list('/usr/local').filter((name) => name.startsWith('cuda'))
  const rank = (name) => (major && name.startsWith(`cuda-${major}`) ? 0 : name === 'cuda' ? 1 : 2)
  toolkits.sort((a, b) => rank(a) - rank(b) || (a < b ? 1 : -1))
  const named = [env.CUDA_HOME, env.CUDA_PATH].filter(Boolean)
  const roots = [...named, ...toolkits.map((name) => join('/usr/local', name)), env.CONDA_PREFIX].filter(Boolean)
  const system = roots.flatMap((base) => [join(base, 'include'), join(base, 'targets/x86_64-linux/include')])
  // the wheels have no crt/; Triton, which comes with torch, has a copy
  const triton = join(dirname(torch.path), 'triton/backends/nvidia/include')
  return [...wheels, ...system, '/usr/include', triton].filter((folder) => existsSync(folder))
}

// headers that ATen/cuda/CUDAContext.h includes
const cudaHeaders = ['cuda_runtime_api.h', 'crt/host_defines.h', 'cublas_v2.h', 'cusparse.h', 'cusolverDn.h']

/** CUDA of a torch: { cuda, nccl, include, why }. `why` names what is missing if torch has CUDA but its headers are incomplete. */
export function findCuda(torch, env = process.env) {
  const built = ['libtorch_cuda.so', 'libc10_cuda.so'].every((name) => existsSync(join(torch.lib, name)))
  const without = (why) => ({ cuda: false, nccl: false, include: [], why })
  if (!built) return without(null)
  if (!existsSync(join(torch.include[0], 'ATen/cuda/CUDAContext.h')))
    return without('ATen/cuda/CUDAContext.h is not among its headers')
  const folders = cudaFolders(torch, env)
  const home = (header) => folders.find((folder) => existsSync(join(folder, header)))
  const lost = cudaHeaders.find((header) => !home(header))
  if (lost) return without(`${lost} was found neither in a toolkit nor in the nvidia wheels`)
  const nccl = home('nccl.h')
  const include = [...new Set([...cudaHeaders.map(home), ...(nccl ? [nccl] : [])])].filter((f) => f !== '/usr/include')
  return { cuda: true, nccl: Boolean(nccl), include, why: null }
}
