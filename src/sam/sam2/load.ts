// SAM2 on its own: a released checkpoint (.pt or .safetensors), a folder that roundtrip wrote, or the SAM2 inside a Sa2VA folder.
import { existsSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { loadWeights, type OpenOptions, openWeights, renamed, type WeightFolder } from '../../checkpoint/index.ts'
import { Mismatch, readJsonObject } from '../../core/index.ts'
import { type Sam2Config, sam2Config } from './config.ts'
import { Sam2Model, videoOnlyNames } from './model.ts'
import { sam2ConfigFromShapes } from './shapes.ts'

const inSa2VA = /^grounding_encoder\.sam2_model\./

/** Sizes come from the shapes of the weights, or from `grounding_encoder_config` of a config.json beside them. */
export function openSam2(path: string, options: OpenOptions = {}): { path: string; model: Sam2Model } {
  const stored = openWeights(path)
  const prefixed = stored.names.some((name) => inSa2VA.test(name))
  const folder = prefixed ? sam2Part(stored) : stored
  const model = new Sam2Model(configOf(path, folder))
  try {
    loadWeights(model, folder, { ...options, unused: videoOnlyNames })
  } catch (error) {
    for (const t of model.parameters().values()) t.dispose()
    throw error
  }
  return { path, model }
}

/** The tensors of a Sa2VA checkpoint that are SAM2's, under SAM2's own names. */
function sam2Part(stored: WeightFolder): WeightFolder {
  const names = stored.names.filter((name) => inSa2VA.test(name))
  const shapes = () => new Map([...stored.shapes()].filter(([name]) => inSa2VA.test(name)))
  return renamed({ ...stored, names, shapes }, (name) => name.replace(inSa2VA, ''))
}

function configOf(path: string, folder: WeightFolder): Sam2Config {
  const file = join(statSync(path).isDirectory() ? path : dirname(path), 'config.json')
  const block = existsSync(file) ? readJsonObject(file)['grounding_encoder_config'] : undefined
  if (block !== undefined) return sam2Config(block, `${file}: grounding_encoder_config`)
  if (!folder.names.some((name) => name.startsWith('sam_mask_decoder.')))
    throw new Mismatch({
      where: path,
      expected: 'a SAM2 checkpoint, or a Sa2VA folder with one inside',
      got: `weights such as ${folder.names.slice(0, 3).join(', ')}`,
    })
  return sam2ConfigFromShapes(folder.shapes(), path)
}
