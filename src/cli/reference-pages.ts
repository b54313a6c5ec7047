// The pages of settings in docs/, from the schemas.
import { settingSections } from '../config/index.ts'
import { basicSettings, firstSettings } from './basic-settings.ts'
import { environmentFlags, perProcessFlags, prototypeFlags, unusedFlags } from './prototype-flags.ts'
import { runTable, showDefault } from './settings.ts'

const cell = (text: string) => text.replaceAll('|', '\\|')

/** One table per group, of the settings that `wanted` accepts. */
function sections(wanted: (path: string) => boolean): string[] {
  return settingSections(runTable()).flatMap(({ group, doc, settings }) => {
    const rows = settings
      .filter((s) => wanted(s.path))
      .map((s) => `\`${s.path}\` | \`${showDefault(s)}\` | ${cell(s.doc)} | ${cell(s.type)}`)
    if (rows.length === 0) return []
    const title = `## ${group === '' ? 'Run' : `\`${group}\``}`
    const about = doc ? [`${doc[0]!.toUpperCase()}${doc.slice(1)}.`, ''] : []
    return [title, '', ...about, 'setting | default | meaning | values', '---|---|---|---', ...rows, '']
  })
}

function referencePage(): string {
  return [
    '# Settings',
    '',
    'A setting is a key of a recipe file and a flag of the same name: `--rl.numGenerations 8`. Recipes override defaults,',
    'flags override recipes. Write lists as `a,b,c` or as JSON, objects as JSON. `--data PATH` sets `dataPath`;',
    '`--reward FILE` adds an entry to `rewards.modules`; settings of `optim` are also accepted under `rl.`.',
    '',
    '```sh',
    'npx roundtrip-rl settings learning    # settings whose name or meaning has the word',
    '```',
    '',
    'The rest is in [advanced settings](reference-advanced.md); flag names of the Python prototypes are in',
    '[prototype flags](prototype-flags.md). These pages are generated: `npm run gen-reference`.',
    '',
    '## The twelve settings you will touch',
    '',
    '| setting | default | when |',
    '|---|---|---|',
    ...firstSettings.map(([path, when]) => `| \`${path}\` | \`${showDefault(runTable().find(path)!)}\` | ${when} |`),
    '',
    ...sections((path) => basicSettings.has(path)),
  ].join('\n')
}

function advancedPage(): string {
  return [
    '# Advanced settings',
    '',
    'Settings that a preset, a recipe or a default usually decides. The common ones are in [settings](reference.md).',
    'This page is generated: `npm run gen-reference`.',
    '',
    ...sections((path) => !basicSettings.has(path)),
  ].join('\n')
}

function prototypePage(): string {
  const own = Object.entries(prototypeFlags).map(([name, path]) => [
    name,
    `\`${path}\`${perProcessFlags.has(name) ? ' per process' : ''}`,
  ])
  const variables = Object.entries(environmentFlags).map(([name, variable]) => [name, `\`${variable}\``])
  const meanings = {
    ...Object.fromEntries([...own, ...variables]),
    beta: '`rl.beta`; in task points `points.reward.beta`',
  }
  return [
    '# Flags of the Python prototypes',
    '',
    'Accepted on the command line and in recipes.',
    'This page is generated: `npm run gen-reference`.',
    '',
    '| name | means |',
    '|---|---|',
    ...Object.entries(meanings).map(([name, meaning]) => `| \`--${name}\` | ${meaning} |`),
    ...Object.entries(unusedFlags).map(([name, reason]) => `| \`--${name}\` | no effect: ${reason} |`),
    '',
  ].join('\n')
}

/** File names in docs/ with their text. */
export const settingPages: Readonly<Record<string, () => string>> = {
  'reference.md': referencePage,
  'reference-advanced.md': advancedPage,
  'prototype-flags.md': prototypePage,
}
