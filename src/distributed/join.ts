import { log } from '../core/index.ts'
import { type Rank, readRank } from './environment.ts'
import { exitCodeOf, writeErrorFile } from './failure.ts'
import { GroupWorld } from './group-world.ts'
import { defaultOptions, type GroupOptions, Link } from './link.ts'
import type { FindFacts } from './meeting.ts'
import { reportTorchrun } from './torchrun.ts'
import { alone, type World } from './world.ts'

const noFacts: FindFacts = async () => ({})

/** The world this process was started into. Alone nothing is opened. */
export async function joinWorld(
  place: Rank = readRank(),
  options: Partial<GroupOptions> = {},
  facts: FindFacts = noFacts,
): Promise<World> {
  if (place.meeting === null) return alone
  const link = await Link.open(place, place.meeting, { ...defaultOptions, ...options }, facts)
  reportTorchrun(place)
  const world = new GroupWorld(link)
  await world.barrier()
  log.debug(`rank ${place.rank} of ${place.size}, started by ${place.source}`)
  return world
}

/**
 * Runs `work` in the world this process was started into, after all processes have found the same `facts`. An error reaches the other
 * processes, and gets the exit code that shows a launcher whether another start can help (launcherCode). Alone, an error has it that brings one.
 */
export async function inWorld<T>(
  options: Partial<GroupOptions>,
  work: (world: World) => Promise<T>,
  facts: FindFacts = noFacts,
): Promise<T> {
  const place = readRank()
  let world: World | undefined
  try {
    world = await joinWorld(place, options, facts)
    const result = await work(world)
    await world.close()
    return result
  } catch (error) {
    await world?.fail(error)
    if (!(error instanceof Error) || (place.size === 1 && !('exitCode' in error))) throw error
    writeErrorFile(error)
    throw Object.assign(error, { launcherCode: exitCodeOf(error) })
  }
}
