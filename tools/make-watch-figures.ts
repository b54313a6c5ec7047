// The pictures of docs/watch.md: the live page about runs that have ended, in a browser without a window.
// node --import tsx tools/make-watch-figures.ts RUN RUN [--out FOLDER]; the page's are runs of `npm run demo -- --seed N`.
import { join } from 'node:path'
import { Command } from 'commander'
import type { Page } from 'playwright-core'
import sharp from 'sharp'
import { atomicWrite, humanBytes, log, packageRoot } from '../src/core/index.ts'
import { startWatch } from '../src/dashboard/index.ts'
import { openBrowser } from '../tests/e2e/browser/chromium.ts'

const desk = { width: 1280, height: 900 }
const phone = { width: 390, height: 844 }

interface Shot {
  view: string
  size: typeof desk
  prepare?: (page: Page) => Promise<unknown>
}

async function bestOfEachRecord(page: Page): Promise<void> {
  await page.getByLabel('order').selectOption('best')
  await page.getByLabel(/^by/).selectOption('iou')
  await page.getByLabel('one of each record').check()
}

const shots: Record<string, Shot> = {
  'watch-curves': {
    view: 'curves',
    size: desk,
    prepare: (page) => page.getByLabel('name runs by').selectOption('seed'),
  },
  'watch-rollouts': { view: 'rollouts', size: desk, prepare: bestOfEachRecord },
  'watch-step': { view: 'step', size: desk },
  'watch-evaluations': { view: 'evaluations', size: desk },
  'watch-phone': { view: 'curves', size: phone },
}

async function take(page: Page, url: string, { view, size, prepare }: Shot): Promise<Buffer> {
  await page.setViewportSize(size)
  await page.goto(`${url}#${view}`)
  await page.reload()
  await page.waitForSelector('.picker li')
  for (const box of await page.locator('.picker input').all()) await box.check()
  await prepare?.(page)
  await page.waitForLoadState('networkidle')
  await page.waitForTimeout(1000)
  return sharp(await page.screenshot())
    .png({ palette: true })
    .toBuffer()
}

new Command('make-watch-figures')
  .argument('<runs...>', 'run folders')
  .option('--out <folder>', 'for the PNG files', join(packageRoot(), 'docs', 'images'))
  .action(async (folders: string[], { out }: { out: string }) => {
    const server = await startWatch({
      folders,
      page: join(packageRoot(), 'assets', 'watch'),
      address: '127.0.0.1',
      port: 0,
      token: undefined,
    })
    const browser = await openBrowser()
    try {
      const page = await browser.newPage()
      for (const [name, shot] of Object.entries(shots)) {
        const png = await take(page, server.url, shot)
        atomicWrite(join(out, `${name}.png`), png)
        log.info(`${name}.png: ${humanBytes(png.length)}`)
      }
    } finally {
      await browser.close()
      await server.close()
    }
  })
  .parse()
