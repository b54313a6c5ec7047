export function hasOwnCache(temporary?: string): boolean
export function useOwnCache(): void
