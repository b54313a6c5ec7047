import { fileURLToPath } from 'node:url'

/** Words for Node that run a module beside another: through tsx from sources, as it is if both are compiled. */
export function ownProgram(module: string, beside: string): string[] {
  const path = fileURLToPath(new URL(module, beside))
  if (beside.endsWith('.ts')) return ['--import', import.meta.resolve('tsx'), path]
  return [path.replace(/\.ts$/, '.js')]
}
