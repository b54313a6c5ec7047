// Debian's Chromium, driven by playwright-core; tests that need it are skipped by name if it is not installed.
import { existsSync } from 'node:fs'
import type { Browser } from 'playwright-core'

const programs = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser']

export const chromiumPath = programs.find((path) => path && existsSync(path))

/** What `test` takes as options: the reason to skip without a browser. */
export const needsBrowser = chromiumPath ? {} : { skip: 'no chromium here: apt-get install chromium' }

export async function openBrowser(): Promise<Browser> {
  const { chromium } = await import('playwright-core')
  return chromium.launch({
    executablePath: chromiumPath,
    args: ['--no-sandbox', '--disable-background-networking', '--disable-gpu'],
  })
}
