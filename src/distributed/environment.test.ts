import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { Unavailable } from '../core/index.ts'
import { deviceIndex, firstHost, podWarning, readRank } from './environment.ts'
import { inWorld, joinWorld } from './join.ts'
import { torchrunVersion } from './torchrun.ts'
import { alone } from './world.ts'

const torchrun = {
  RANK: '3',
  WORLD_SIZE: '4',
  LOCAL_RANK: '1',
  LOCAL_WORLD_SIZE: '2',
  MASTER_ADDR: 'node7',
  MASTER_PORT: '29777',
  TORCHELASTIC_RUN_ID: 'abc',
  TORCHELASTIC_RESTART_COUNT: '2',
}

test('no variables mean one process', () => {
  const place = readRank({})
  assert.deepEqual([place.source, place.rank, place.size, place.meeting], ['none', 0, 1, null])
  assert.equal(readRank({ RANK: '0', WORLD_SIZE: '1', LOCAL_RANK: '0' }).meeting, null)
})

test('torchrun gives rank, host and port, and its restarts have separate keys', () => {
  const place = readRank(torchrun)
  assert.deepEqual([place.source, place.rank, place.size, place.localRank, place.localSize], ['torchrun', 3, 4, 1, 2])
  assert.deepEqual(place.meeting, { kind: 'tcp', host: 'node7', port: 29777, server: false })
  assert.equal(place.prefix, 'abc/2')
})

test('a world of one is one process whoever started it, and its rank must be 0', () => {
  assert.deepEqual(readRank({ WORLD_SIZE: '1' }), readRank({}))
  assert.equal(readRank({ RANK: '0', WORLD_SIZE: '1' }).source, 'torchrun')
  assert.throws(() => readRank({ RANK: '1', WORLD_SIZE: '1' }), /RANK/)
  assert.deepEqual(readRank({ PMI_RANK: '0', PMI_SIZE: '1' }), readRank({}))
})

test('a starter that says nothing of the host has one process on each', () => {
  const { LOCAL_RANK: _, LOCAL_WORLD_SIZE: __, ...pods } = torchrun
  const { localRank, localSize } = readRank(pods)
  assert.deepEqual([localRank, localSize], [0, 1])
})

test('rank 0 serves the store, next to that of torchrun if it has one', () => {
  const server = (more: Record<string, string>) => readRank({ ...torchrun, RANK: '0', ...more }).meeting
  assert.deepEqual(server({}), { kind: 'tcp', host: 'node7', port: 29777, server: true })
  assert.deepEqual(server({ TORCHELASTIC_USE_AGENT_STORE: 'True' }), {
    kind: 'tcp',
    host: 'node7',
    port: 29778,
    server: true,
  })
  assert.deepEqual(server({ TORCHELASTIC_USE_AGENT_STORE: 'False' }), {
    kind: 'tcp',
    host: 'node7',
    port: 29777,
    server: true,
  })
})

test('the torch of the torchrun above a process is found, whatever is between them', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-torchrun-'))
  const python = join(folder, 'python')
  writeFileSync(python, '#!/bin/sh\necho 2.11.0+cu130\n', { mode: 0o755 })
  const starts = "console.log(require('child_process').spawn('sleep', ['60']).pid); setInterval(() => {}, 1000)"
  for (const [words, version] of [
    [['/usr/bin/torchrun'], '2.11.0+cu130'],
    [['a-program'], null],
  ] as const) {
    const stdio = ['ignore', 'pipe', 'inherit'] as const
    const child = spawn(process.execPath, ['-e', starts, ...words], { argv0: python, stdio: [...stdio] })
    const below = Number(String((await once(child.stdout!, 'data'))[0]))
    assert.equal(torchrunVersion(below), version)
    process.kill(below)
    child.kill()
  }
  rmSync(folder, { recursive: true })
})

test('no Python file of the current folder runs when the torch of a torchrun is asked for', async (t) => {
  const python = spawnSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' }).stdout?.trim()
  if (!python) return t.skip('no python3')
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-torchrun-'))
  const canary = join(folder, 'canary')
  for (const name of ['csv.py', 'zipfile.py', 'email.py', 'json.py'])
    writeFileSync(join(folder, name), `open(${JSON.stringify(canary)}, 'w')`)
  const words = ['-e', 'setInterval(() => {}, 1000)', 'torchrun']
  const child = spawn(process.execPath, words, { argv0: python, stdio: 'ignore' })
  const before = process.cwd()
  try {
    process.chdir(folder)
    torchrunVersion(child.pid)
  } finally {
    process.chdir(before)
    child.kill()
  }
  assert.ok(!existsSync(canary))
  rmSync(folder, { recursive: true })
})

test('our launcher gives a file to meet in', () => {
  const place = readRank({ RANK: '1', WORLD_SIZE: '2', LOCAL_RANK: '1', ROUNDTRIP_STORE: '/tmp/x/store' })
  assert.deepEqual(place.meeting, { kind: 'file', path: '/tmp/x/store' })
  assert.equal(place.source, 'own launcher')
})

test('Slurm gives the first host of the list and a port of the job; MASTER_ADDR wins', () => {
  const env = {
    SLURM_PROCID: '5',
    SLURM_NTASKS: '8',
    SLURM_LOCALID: '1',
    SLURM_NTASKS_PER_NODE: '4',
    SLURM_JOB_ID: '123456',
    SLURM_JOB_NODELIST: 'gpu[03-06,9],cpu1',
  }
  const place = readRank(env)
  assert.deepEqual([place.source, place.rank, place.size, place.localRank], ['Slurm', 5, 8, 1])
  assert.deepEqual(place.meeting, { kind: 'tcp', host: 'gpu03', port: 18456, server: false })
  assert.deepEqual(readRank({ ...env, MASTER_ADDR: 'a', MASTER_PORT: '7' }).meeting, {
    kind: 'tcp',
    host: 'a',
    port: 7,
    server: false,
  })
  for (const SLURM_JOB_NAME of ['interactive', 'bash'])
    assert.equal(readRank({ ...env, SLURM_JOB_NAME }).source, 'none')
  assert.equal(firstHost('alpha,beta[1-2]'), 'alpha')
})

test('Open MPI gives ranks and needs an address', () => {
  const env = { OMPI_COMM_WORLD_RANK: '1', OMPI_COMM_WORLD_SIZE: '2', OMPI_COMM_WORLD_LOCAL_RANK: '1' }
  assert.throws(() => readRank(env), /MASTER_ADDR: expected the host of rank 0, got unset/)
  const place = readRank({ ...env, MASTER_ADDR: 'h' })
  assert.deepEqual([place.source, place.rank, place.localRank], ['Open MPI', 1, 1])
})

test('half a set of variables, a rank that is too large and words instead of numbers are refused by name', () => {
  assert.throws(() => readRank({ WORLD_SIZE: '2' }), /RANK: expected a whole number of 0 or more, got unset/)
  assert.throws(() => readRank({ RANK: '0', WORLD_SIZE: '2' }), /WORLD_SIZE=2 says that 2 processes train together/)
  assert.throws(() => readRank({ ...torchrun, RANK: '4' }), /RANK: expected below the world size 4, got 4/)
  assert.throws(() => readRank({ ...torchrun, WORLD_SIZE: 'four' }), /WORLD_SIZE: expected a whole number/)
  assert.throws(() => readRank({ RANK: '0' }), /WORLD_SIZE: expected a whole number of 1 or more, got unset/)
})

test('a process takes the GPU of its local rank, or the only one it sees', () => {
  const place = readRank(torchrun)
  assert.equal(deviceIndex(place, 2, false, {}), 1)
  assert.equal(deviceIndex(place, 1, false, { CUDA_VISIBLE_DEVICES: '6' }), 0)
  const refusal = (gpus: number) => new RegExp(`LOCAL_RANK: expected a process for each of ${gpus} GPUs, got 1`)
  assert.throws(() => deviceIndex(place, 1, false, {}), refusal(1))
  assert.throws(() => deviceIndex(place, 0, true, {}), refusal(0))
  const fourOfTwo = [0, 1, 2, 3].map((localRank) => deviceIndex({ ...place, localRank }, 2, true, {}))
  assert.deepEqual(fourOfTwo, [0, 1, 0, 1])
})

test('a pod with several GPUs and one process is warned about', () => {
  const pod = { KUBERNETES_SERVICE_HOST: '10.0.0.1', RANK: '0', WORLD_SIZE: '2', MASTER_ADDR: 'm' }
  assert.match(podWarning(pod, 8)!, /8 GPUs/)
  assert.equal(podWarning({ ...pod, LOCAL_RANK: '0' }, 8), null)
  assert.equal(podWarning({}, 8), null)
})

test('alone, the process ends with the code that an error brings; other errors stay as they are', async () => {
  const failing = (error: Error) => inWorld({}, () => Promise.reject(error)).catch((e: Error) => Object.entries(e))
  const away = new Unavailable({ where: 'tracker', expected: 'an answer', got: 'none' })
  assert.deepEqual(Object.fromEntries(await failing(away)).launcherCode, 69)
  assert.deepEqual(await failing(new Error('other')), [])
})

test('alone is the identity and opens no file, socket or thread', async () => {
  const open = () => [readdirSync('/proc/self/task').length, readdirSync('/proc/self/fd').length]
  const before = open()
  const world = await joinWorld(readRank({}))
  assert.equal(world, alone)
  assert.deepEqual(await world.sum([1, 0.1]), [1, 0.1])
  assert.deepEqual(await world.gather({ a: 1 }), [{ a: 1 }])
  assert.deepEqual(await world.agree([true, false]), [true, false])
  await world.barrier()
  await world.sumGradients(new Map())
  await world.broadcast(new Map())
  await world.close()
  assert.deepEqual(open(), before)
})

test('what a launcher says is used: local rank, restarts, PMI, the default port', () => {
  const slurm = {
    SLURM_PROCID: '5',
    SLURM_NTASKS: '8',
    SLURM_NTASKS_PER_NODE: '4',
    SLURM_LOCALID: '3',
    SLURM_RESTART_COUNT: '2',
    SLURM_JOB_ID: '7',
    MASTER_ADDR: 'a',
  }
  const job = readRank(slurm)
  assert.deepEqual([job.localRank, job.localSize, job.restart, job.prefix], [3, 4, 2, 'slurm-7-0/2'])
  assert.deepEqual(job.meeting, { kind: 'tcp', host: 'a', port: 29500, server: false })
  const { SLURM_LOCALID: _, ...spread } = slurm
  assert.equal(readRank(spread).localRank, 1, 'ranks of a host follow each other')
  const { SLURM_NTASKS_PER_NODE: __, ...each } = slurm
  assert.equal(readRank({ ...each, SLURM_TASKS_PER_NODE: '2(x4)' }).localSize, 2)
  const intel = { PMI_RANK: '2', PMI_SIZE: '6', MPI_LOCALNRANKS: '3', MPI_LOCALRANKID: '1', MASTER_ADDR: 'h' }
  assert.equal(readRank(intel).localRank, 1)
  const pmi = readRank({ PMI_RANK: '2', PMI_SIZE: '6', MPI_LOCALNRANKS: '3', MASTER_ADDR: 'h' })
  assert.deepEqual([pmi.source, pmi.rank, pmi.size, pmi.localRank, pmi.localSize], ['PMI', 2, 6, 2, 3])
})

test('a pod with one GPU is not warned about', () => {
  const pod = { KUBERNETES_SERVICE_HOST: '10.0.0.1', RANK: '0', WORLD_SIZE: '2', MASTER_ADDR: 'm' }
  assert.equal(podWarning(pod, 1), null)
  assert.notEqual(podWarning(pod, 2), null)
})
