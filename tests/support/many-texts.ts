// Texts in many scripts, the same on every machine: what the stored table of token ids was computed from. Prints them as JSON when run.
import { pathToFileURL } from 'node:url'

/** Contiguous assigned letters; newer versions of Unicode have added nothing inside. */
const scripts: readonly (readonly [number, number])[] = [
  [0x41, 0x5a], [0x61, 0x7a], [0xc0, 0xd6], [0xd8, 0xf6], [0xf8, 0x17f], [0x391, 0x3a1], [0x3b1, 0x3c9], [0x410, 0x44f], [0x531, 0x556], [0x561, 0x586],
  [0x5d0, 0x5ea], [0x621, 0x63a], [0x641, 0x64a], [0x905, 0x939], [0x993, 0x9a8], [0xa05, 0xa0a], [0xa93, 0xaa8], [0xb93, 0xb95], [0xbae, 0xbb9],
  [0xc12, 0xc28], [0xc92, 0xca8], [0xd12, 0xd28], [0xe01, 0xe30], [0xe94, 0xe97], [0xf49, 0xf6c], [0x1000, 0x1021], [0x10d0, 0x10f0], [0x1200, 0x1246],
  [0x13a0, 0x13f4], [0x1401, 0x1420], [0x1780, 0x17b3], [0x1820, 0x1842], [0x1e00, 0x1eff], [0x2c80, 0x2ce4], [0x3041, 0x3096], [0x30a1, 0x30fa],
  [0x3105, 0x312c], [0x4e00, 0x9fa5], [0xa000, 0xa48c], [0xac00, 0xd7a3], [0xff21, 0xff3a], [0x10330, 0x1034a], [0x10400, 0x1044f], [0x12000, 0x12300],
  [0x1d400, 0x1d454], [0x20000, 0x20100],
] // biome-ignore format: a table

const digits = ['0123456789', '٠١٢٣٤٥٦٧٨٩', '०१२३४५६७८९', '０１２３４５６７８９', '²³¹¼½', 'ⅠⅡⅢⅳ', '①②③']
const emoji = ['😀', '👍🏽', '👩‍👩‍👧‍👦', '🏳️‍🌈', '🇩🇪', '🇯🇵🇫🇷', '❤️', '☎️', '1️⃣', '🧑🏿‍🚀', '🤷🏻‍♀️', '🫠', '✂', '⌚', '🏴󠁧󠁢󠁥󠁮󠁧󠁿']
const combining = [
  'e\u0301',
  'a\u0308',
  'n\u0303\u0323',
  'q\u0307\u0323',
  '\u1112\u1161\u11ab',
  'ก็',
  'नि',
  'క్ష',
  'ﬁ',
  'Å',
  '\u0301x',
  'i\u0307',
  'ŏ̤',
  'Ω',
  '豈',
  '\u0344',
]
const blanks = [
  ' ',
  '  ',
  '   ',
  '\n',
  '\n\n',
  '\r\n',
  '\t',
  '\t\t',
  ' \n ',
  '\u00a0',
  '\u3000',
  '\u2003 ',
  '\u200b',
  '\u2028',
  '    \n\t ',
  '\v',
  '\f',
  '\u0085',
]
const controls = [
  '\u0000',
  '\u0001',
  '\u0007',
  '\b',
  '\u001b[0m',
  '\u007f',
  '\u009f',
  '\u00ad',
  '\u200d',
  '\u200e',
  '\ufeff',
  '\ufffd',
  '\ufffe',
  '\ue000',
  '\u{e0041}',
  '\u{10ffff}',
]
const marks = [
  ...'.,;:!?…—–-_/\\|@#$%^&*()[]{}<>+=~`"\'“”«»¿¡。、！？・।॥٪؟',
  "'s",
  "'LL",
  "n't",
  "'Re",
  '...',
  '!!!',
  '->',
  '==',
  '//',
  '/*',
  '*/',
  '```',
  '<!--',
  '≤',
  '∑',
  '→',
  '€',
  '¥',
  '°',
]
const special = [
  '<|endoftext|>',
  '<|im_start|>',
  '<|im_end|>',
  '<|im_start|>user\n',
  '<|vision_start|>',
  '<|image_pad|>',
  '<|object_ref_start|>',
  '<tool_call>',
  '<think>',
  '</think>',
  '<|fim_prefix|>',
  '<s>',
  '</s>',
  '<unk>',
  '<pad>',
  '[UNUSED_TOKEN_140]',
  '<|action_start|>',
  '<|plugin|>',
  '<|im_start',
  '<image>',
  '[SEG]',
  '<p>',
  '</p>',
  '<0x0A>',
  '▁',
  '▁▁',
  'Ġ',
  'Ċ',
]
const words =
  "the of and to in is that it for was on are as with The cat dog round-trip segmentation please describe region mask red cup left right above below internationalization antidisestablishmentarianism naïve café Straße I'm you're we'll DON'T camelCase snake_case kebab-case HTTPServer x86_64 v1.2.3 3.14159 1,000,000 2026-11-17 12:34:56".split(
    ' ',
  )
const code = [
  'def f(x):\n    return x + 1\n',
  'for (let i = 0; i < n; i++) {\n\tsum += a[i]!\n}\n',
  "SELECT * FROM t WHERE a <> 'b';",
  '<div class="a">&nbsp;</div>',
  '{"a": [1, 2.5e-3, null]}',
  '#include <stdio.h>\nint main() { return 0; }',
  'https://example.org/a?b=c&d=%20#e',
  'C:\\Users\\x\\y.txt',
  '$\\frac{a}{b}$',
  'git commit -m "x" && npm test',
  'λx. x → x',
  '\x1b[31mred\x1b[0m',
  'a@b.c',
]

/** mulberry32: a number from 0 to n - 1. */
function dice(seed: number): (n: number) => number {
  let state = seed
  return (n) => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) % n
  }
}

export function manyTexts(count = 5100): string[] {
  const roll = dice(20_261)
  const pick = <T>(items: readonly T[]): T => items[roll(items.length)]!
  const letters = ([first, last]: readonly [number, number]) =>
    String.fromCodePoint(...Array.from({ length: 1 + roll(9) }, () => first + roll(last - first + 1)))
  const repeated = () => pick([...marks, 'a', 'ha', '好', ' ', '\n', '0', '👍']).repeat(2 + roll(20))
  const pieces: readonly (() => string)[] = [
    () => letters(pick(scripts)),
    () => ` ${letters(pick(scripts))}`,
    () => `${pick(words)} `,
    () => pick(blanks),
    () => pick(marks),
    () => Array.from({ length: 1 + roll(7) }, () => pick([...pick(digits)])).join(''),
    () => pick(combining),
    () => pick(emoji),
    () => pick(controls),
    () => pick(special),
    () => pick(code),
    repeated,
  ]
  return Array.from({ length: count }, (_, i) => {
    const length = 1 + roll(i % 10 === 0 ? 24 : 7)
    // Every third text stays in one script, as texts of people do.
    const own = pick(scripts)
    const parts = i % 3 === 0 ? [() => letters(own), () => ' ', () => pick(marks), () => pick(combining)] : pieces
    return Array.from({ length }, () => pick(parts)()).join('')
  })
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href)
  process.stdout.write(JSON.stringify(manyTexts()))
