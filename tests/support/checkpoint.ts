import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Mismatch } from '../../src/core/index.ts'

/** A separate folder for one test, removed after it. */
export function scratch(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'checkpoint-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

export function fixture(name: string): string {
  return fileURLToPath(new URL(`../../src/checkpoint/fixtures/${name}`, import.meta.url))
}

export function golden(name: string): string {
  return fileURLToPath(new URL(`../../tests/fixtures/golden/${name}`, import.meta.url))
}

/** The call throws a Mismatch, nothing else, whose text matches. */
export function refuses(call: () => unknown, text: RegExp): void {
  assert.throws(call, (error: unknown) => {
    assert.ok(error instanceof Mismatch, `a Mismatch, not ${String(error)}`)
    assert.match(error.message, text)
    return true
  })
}

/** True when the call returned, false when it threw a Mismatch; any other error fails the test. */
export function survives(call: () => unknown): boolean {
  try {
    call()
    return true
  } catch (error) {
    if (!(error instanceof Mismatch)) throw error
    return false
  }
}
