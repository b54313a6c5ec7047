// Who this process is among how many, read from the variables of the launcher that started it. First match wins.
import { type Refuse, refuseAt } from '../core/index.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** Where processes meet: a file on one host, or a server on the host of rank 0. */
export type Meeting = { kind: 'file'; path: string } | { kind: 'tcp'; host: string; port: number; server: boolean }

export interface Rank {
  source: 'own launcher' | 'torchrun' | 'Slurm' | 'Open MPI' | 'PMI' | 'none'
  rank: number
  size: number
  localRank: number
  /** Processes on this host. */
  localSize: number
  /** Null when this is the only process. */
  meeting: Meeting | null
  /** In front of every key of the store: a store may outlive an attempt. */
  prefix: string
  /** Starts before this one. */
  restart: number
}

const defaultPort = 29500

const refuse: Refuse = refuseAt('environment')

export function readRank(env: Environment = process.env): Rank {
  return fromTorchrun(env) ?? fromSlurm(env) ?? fromMpi(env) ?? single
}

const single: Rank = {
  source: 'none',
  rank: 0,
  size: 1,
  localRank: 0,
  localSize: 1,
  meeting: null,
  prefix: '',
  restart: 0,
}

function fromTorchrun(env: Environment): Rank | null {
  const { RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR } = env
  if (RANK === undefined && WORLD_SIZE === undefined) return null
  const size = count(env, 'WORLD_SIZE', 1)
  if (size === 1 && RANK === undefined) return single
  const rank = rankBelow(env, 'RANK', size)
  if (size > 1 && LOCAL_RANK === undefined && MASTER_ADDR === undefined) {
    const hint = `WORLD_SIZE=${size} says that ${size} processes train together, and nothing says where they meet; start them with --nproc, torchrun or srun, or unset WORLD_SIZE`
    refuse('MASTER_ADDR', 'the host of rank 0', 'unset', hint)
  }
  const localSize = env['LOCAL_WORLD_SIZE'] === undefined ? 1 : count(env, 'LOCAL_WORLD_SIZE', 1)
  const own = env['ROUNDTRIP_STORE'] !== undefined
  return {
    source: own ? 'own launcher' : 'torchrun',
    rank,
    size,
    localRank: LOCAL_RANK === undefined ? rank % localSize : count(env, 'LOCAL_RANK', 0),
    localSize,
    meeting: size === 1 ? null : meetingOf(env, rank, MASTER_ADDR),
    prefix: prefixOf(env['TORCHELASTIC_RUN_ID'] ?? 'run', env['TORCHELASTIC_RESTART_COUNT']),
    restart: Number(env['TORCHELASTIC_RESTART_COUNT'] ?? 0),
  }
}

function fromSlurm(env: Environment): Rank | null {
  const { SLURM_PROCID, SLURM_NTASKS, SLURM_JOB_NAME } = env
  const interactive = SLURM_JOB_NAME === 'bash' || SLURM_JOB_NAME === 'interactive'
  if (SLURM_PROCID === undefined || SLURM_NTASKS === undefined || interactive) return null
  const size = count(env, 'SLURM_NTASKS', 1)
  if (size === 1) return null
  const rank = rankBelow(env, 'SLURM_PROCID', size)
  const guess = env['MASTER_ADDR'] === undefined ? slurmAddress(env) : undefined
  const localSize = Number.parseInt(env['SLURM_NTASKS_PER_NODE'] ?? env['SLURM_TASKS_PER_NODE'] ?? '1', 10) || 1
  // jobs that share a host get separate ports
  const port =
    guess && env['MASTER_PORT'] === undefined
      ? { MASTER_PORT: String(15000 + (Number(env['SLURM_JOB_ID'] ?? 0) % 10000)) }
      : {}
  return {
    source: 'Slurm',
    rank,
    size,
    localRank: env['SLURM_LOCALID'] === undefined ? rank % localSize : count(env, 'SLURM_LOCALID', 0),
    localSize,
    meeting: meetingOf({ ...env, ...port }, rank, env['MASTER_ADDR'] ?? guess),
    prefix: prefixOf(`slurm-${env['SLURM_JOB_ID'] ?? 0}-${env['SLURM_STEP_ID'] ?? 0}`, env['SLURM_RESTART_COUNT']),
    restart: Number(env['SLURM_RESTART_COUNT'] ?? 0),
  }
}

function slurmAddress(env: Environment): string {
  const list = env['SLURM_JOB_NODELIST'] ?? env['SLURM_NODELIST']
  if (list) return firstHost(list)
  refuse('SLURM_JOB_NODELIST', 'the hosts of the job', 'unset')
}

/** 'gpu[03-06,9],cpu1' begins with gpu03. */
export function firstHost(list: string): string {
  const match = /^([^[,]+)(?:\[([^\]]+)\])?/.exec(list)
  const first = match?.[2]?.split(/[-,]/)[0] ?? ''
  return `${match?.[1] ?? list}${first}`
}

function fromMpi(env: Environment): Rank | null {
  const open = env['OMPI_COMM_WORLD_RANK'] !== undefined
  if (!open && env['PMI_RANK'] === undefined) return null
  const [rankName, sizeName] = open ? ['OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE'] : ['PMI_RANK', 'PMI_SIZE']
  const size = count(env, sizeName!, 1)
  const rank = rankBelow(env, rankName!, size)
  if (size === 1) return single
  const localSize = Number(env['OMPI_COMM_WORLD_LOCAL_SIZE'] ?? env['MPI_LOCALNRANKS'] ?? 1)
  return {
    source: open ? 'Open MPI' : 'PMI',
    rank,
    size,
    localRank: Number(env['OMPI_COMM_WORLD_LOCAL_RANK'] ?? env['MPI_LOCALRANKID'] ?? rank % localSize),
    localSize,
    meeting: meetingOf(env, rank, env['MASTER_ADDR']),
    prefix: prefixOf('mpi', undefined),
    restart: 0,
  }
}

function meetingOf(env: Environment, rank: number, host: string | undefined): Meeting {
  const path = env['ROUNDTRIP_STORE']
  if (path) return { kind: 'file', path }
  if (host === undefined) {
    const hint = 'set MASTER_ADDR to the host of rank 0, and MASTER_PORT if 29500 is taken'
    refuse('MASTER_ADDR', 'the host of rank 0', 'unset', hint)
  }
  const port = env['MASTER_PORT'] === undefined ? defaultPort : count(env, 'MASTER_PORT', 1)
  // torchrun may listen on the port itself, with the protocol of its torch: processes meet at their own store, next to it
  const isTaken = env['TORCHELASTIC_USE_AGENT_STORE'] === 'True'
  return { kind: 'tcp', host, port: isTaken ? nextPort(port) : port, server: rank === 0 }
}

const nextPort = (port: number) => (port < 65535 ? port + 1 : port - 1)

function prefixOf(run: string, restart: string | undefined): string {
  return `${run}/${restart ?? 0}`
}

function count(env: Environment, name: string, least: number): number {
  const text = env[name]
  const value = text === undefined || !/^\d+$/.test(text) ? Number.NaN : Number(text)
  if (Number.isSafeInteger(value) && value >= least) return value
  const expected = `a whole number of ${least} or more`
  const hint = 'the variables of a launcher come as a set: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT'
  refuse(name, expected, text ?? 'unset', hint)
}

function rankBelow(env: Environment, name: string, size: number): number {
  const rank = count(env, name, 0)
  if (rank < size) return rank
  refuse(name, `below the world size ${size}`, rank)
}

/** In a pod RANK counts pods; with several GPUs and no LOCAL_RANK all but one would idle. Null: nothing to say. */
export function podWarning(env: Environment, gpus: number): string | null {
  const pods =
    env['KUBERNETES_SERVICE_HOST'] !== undefined && env['LOCAL_RANK'] === undefined && env['RANK'] !== undefined
  if (!pods || gpus < 2) return null
  return `this pod sees ${gpus} GPUs and starts one process: RANK and WORLD_SIZE count pods here; use torchrun inside the pod (docs/distributed.md)`
}

export function visibleDevices(env: Environment): string[] | undefined {
  return env['CUDA_VISIBLE_DEVICES']
    ?.split(',')
    .map((word) => word.trim())
    .filter(Boolean)
}

/** Index of the CUDA device of a process among `gpus` visible ones; `shares`: several processes may have the same one. */
export function deviceIndex(place: Rank, gpus: number, shares: boolean, env: Environment = process.env): number {
  if (visibleDevices(env)?.length === 1 || place.size === 1) return 0
  if (place.localRank < gpus || (shares && gpus > 0)) return place.localRank % gpus
  const hint = 'start at most as many processes on a host as it has GPUs, or share them with --distributed.backend gloo'
  refuse('LOCAL_RANK', `a process for each of ${gpus} GPUs`, place.localRank, hint)
}
