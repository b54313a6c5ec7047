import { log } from '../core/index.ts'
import { type Place, readPlace } from './environment.ts'
import { GroupWorld } from './group-world.ts'
import { defaultLimits, type Limits, Link } from './link.ts'
import { alone, type World } from './world.ts'

/** The world this process was started into. Alone nothing is opened. */
export async function joinWorld(place: Place = readPlace(), limits: Partial<Limits> = {}): Promise<World> {
  if (place.meeting === null) return alone
  const link = await Link.open(place, place.meeting, { ...defaultLimits, ...limits })
  const world = new GroupWorld(link)
  await world.barrier()
  log.debug(`rank ${place.rank} of ${place.size}, started by ${place.source}`)
  return world
}
