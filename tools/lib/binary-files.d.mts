export interface BinaryFile {
  line: string
  file: string
  bytes: number
  hash: string
  madeBy: string
}
export function fileOf(path: string): { bytes: number; hash: string }
export function tableRows(page: string): BinaryFile[]
