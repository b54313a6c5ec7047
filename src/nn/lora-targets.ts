// Which linear layers `lora.targets` means, by their names in the checkpoint. Vision towers are never adapted.
import { Mismatch } from '../core/index.ts'

interface TargetScope {
  /** In front of the names below: `language_model.` if the language model is a part of the model. */
  readonly root: string
  /** The family's default, by the name after `root`. */
  isDefault(name: string): boolean
  /** Linear layers between the frozen image features and the language model, by their whole names. */
  readonly projector?: RegExp
}

const decoderLayer = /(?:^|\.)layers\.\d+\./
const attention = /\.(?:self_attn|attention)\.[^.]+$/

/** Null: the family's default. Else `attention` or `all-linear` of the decoder layers, or an expression that matches whole names. */
export function targetRule(targets: string | null, scope: TargetScope): (name: string) => boolean {
  const { root, projector } = scope
  const isDefault = (name: string) => name.startsWith(root) && scope.isDefault(name.slice(root.length))
  const isLayer = (name: string) => name.startsWith(root) && decoderLayer.test(name)
  if (targets === null) return isDefault
  if (targets === 'attention') return (name) => isLayer(name) && attention.test(name)
  if (targets === 'all-linear') return isLayer
  const wanted = expression(targets)
  return (name) => (isLayer(name) || isDefault(name) || projector?.test(name) === true) && wanted.test(name)
}

function expression(text: string): RegExp {
  try {
    return new RegExp(`^(?:${text})$`)
  } catch (error) {
    const expected = 'attention, all-linear, or a regular expression'
    throw new Mismatch({ where: 'settings', field: 'lora.targets', expected, got: text }, { cause: error })
  }
}
