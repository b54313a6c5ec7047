// --import of this file, or of tsx when it is loaded already: see loader.mjs.
import { register } from './loader.mjs'

register()

export { register }
