/** Colours of the light and the dark scheme. `--s0` draws metrics of the whole run, `--s1` to `--s10` tasks or runs. */
export const light = `--page: #f6f5f2; --card: #fdfdfc; --ink: #1b1b1a; --soft: #5c5b57; --line: #e2e0da; --link: #1a5fb4; --mark: #fff0a8;
  --good: #0a7a33; --bad: #b3261e; --record: #00b884; --policy: #ff4fa3; --ema: #ffb000; --judge: #4f8cff;
  --s0: #6d6c68; --s1: #2a78d6; --s2: #d9541e; --s3: #0a8a5f; --s4: #9b4dca; --s5: #b8860b; --s6: #c2185b; --s7: #00838f; --s8: #6d4c41; --s9: #5c6bc0; --s10: #558b2f;`
export const dark = `--page: #141413; --card: #1e1e1c; --ink: #f0efeb; --soft: #b3b1aa; --line: #353430; --link: #8ab8f5; --mark: #5a4a00; --good: #4cc374; --bad: #ff8a80;
  --s0: #a8a69f; --s1: #5aa2f2; --s2: #f0875a; --s3: #3fc495; --s4: #c68cf0; --s5: #e0b040; --s6: #f06a9b; --s7: #40c0cc; --s8: #bd9486; --s9: #97a5f0; --s10: #9ccc65;`

export const slots = 10
const slotRules = Array.from({ length: slots + 1 }, (_, slot) => `.s${slot} { color: var(--s${slot}); }`).join(' ')

/** Rules of the drawings themselves: for the pages, and for a chart saved as a file. */
export const chartStyle = `
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .tick { fill: var(--soft); font-size: 10.5px; font-variant-numeric: tabular-nums; }
.raw, .line { fill: none; stroke: currentColor; stroke-linejoin: round; stroke-linecap: round; }
.raw { stroke-width: 1; opacity: 0.28; } .line { stroke-width: 2; } .band { fill: currentColor; }
.end { fill: currentColor; stroke: var(--card); stroke-width: 1.5; }
${slotRules}
`
