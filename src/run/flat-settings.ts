/** Path of a setting -> its value. */
export type Settings = Record<string, unknown>

export function flattened(value: unknown, path = ''): Settings {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return { [path]: value }
  return Object.assign({}, ...Object.entries(value).map(([k, v]) => flattened(v, path ? `${path}.${k}` : k)))
}
