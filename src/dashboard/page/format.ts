/** Exponential mean without the bias of its start, as TensorBoard draws it; values that are not finite are left as they are. */
export function smoothed(values: readonly number[], weight: number): number[] {
  let [mean, scale] = [0, 0]
  return values.map((value) => {
    if (!Number.isFinite(value)) return value
    mean = mean * weight + (1 - weight) * value
    scale = scale * weight + (1 - weight)
    return mean / scale
  })
}

/** Saves a file from the page. Characters of `name` that a file name may not have are replaced: it may come from a run. */
export function download(data: Blob, name: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(data)
  link.download = name.replace(/[^A-Za-z0-9._-]+/g, '_').slice(0, 100)
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}

/** An SVG file as pixels. */
export async function pngOf(svg: Blob): Promise<Blob> {
  const image = new Image()
  image.src = URL.createObjectURL(svg)
  await image.decode()
  const canvas = document.createElement('canvas')
  canvas.width = 2 * image.width
  canvas.height = 2 * image.height
  canvas.getContext('2d')!.drawImage(image, 0, 0, canvas.width, canvas.height)
  URL.revokeObjectURL(image.src)
  return new Promise((done, fail) =>
    canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error('no PNG'))), 'image/png'),
  )
}
