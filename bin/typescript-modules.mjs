// A hook of Node's loader: tsx takes a .ts file for CommonJS unless the package.json above it says module, which that of `npm init` does not.

export async function resolve(name, context, next) {
  const file = await next(name, context)
  return /\.ts(\?|$)/.test(file.url) && file.format === 'commonjs' ? { ...file, format: 'module' } : file
}
