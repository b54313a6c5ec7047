import { chartStyle, dark, light } from './markup/chart-style.ts'

/** Style of the report and, with page/page.css after it, of the live page. The colours follow the reader's light or dark scheme. */
export const style = `
:root { color-scheme: light dark; ${light} }
@media (prefers-color-scheme: dark) { :root { ${dark} } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 10px; }
h3 { font-size: 15px; margin: 20px 0 8px; color: var(--soft); font-weight: 600; }
p { margin: 4px 0 12px; color: var(--soft); max-width: 80ch; }
.card, .chart, .rollout { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 14px 20px; padding: 16px; margin: 16px 0 0; }
.facts dt, .small { color: var(--soft); font-size: 12.5px; overflow-wrap: anywhere; }
.facts dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
details { margin-top: 12px; }
summary { cursor: pointer; color: var(--soft); }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: 6px 12px 6px 0; border-top: 1px solid var(--line); vertical-align: top; font-weight: 400; overflow-wrap: anywhere; }
thead th { border: 0; color: var(--soft); font-size: 12.5px; }
.settings th { overflow-wrap: break-word; }
.scroll { overflow-x: auto; padding: 8px 16px; }
b.name span { display: inline-block; }
.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.eval { padding: 8px 16px 4px; }
.eval td, .eval th { vertical-align: middle; }
.eval td.plot { width: 36%; padding-right: 0; }
.eval td:first-child, .eval th:first-child { min-width: 11em; }
.eval small { color: var(--soft); }
.up { color: var(--good); } .down { color: var(--bad); } .flat { color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; color: var(--soft); font-size: 13px; margin: 0 0 10px; }
.key { display: inline-block; width: 14px; height: 3px; border-radius: 2px; margin-right: 6px; vertical-align: middle; background: currentColor; }
.key.dot { width: 10px; height: 10px; border-radius: 50%; }
.key.before { background: var(--card); border: 2px solid var(--soft); } .key.after { background: var(--s1); }
.key.record { background: var(--record); } .key.judge { background: var(--judge); } .key.policy { background: repeating-linear-gradient(90deg, var(--policy) 0 4px, transparent 4px 6px); } .key.ema { background: repeating-linear-gradient(90deg, var(--ema) 0 3px, transparent 3px 5px); }
svg { display: block; width: 100%; height: auto; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(320px, 100%), 1fr)); gap: 14px; }
.chart { margin: 0; padding: 12px 12px 8px; min-width: 0; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 12px; font-size: 13px; margin-bottom: 6px; }
figcaption b { overflow-wrap: anywhere; } figcaption small { flex-basis: 100%; color: var(--soft); font-size: 12px; } .values { display: flex; flex-wrap: wrap; gap: 0 12px; color: var(--soft); font-variant-numeric: tabular-nums; }
.lost { color: var(--bad); }
.hover rect { fill: transparent; } .hover line { stroke: var(--soft); stroke-width: 1; opacity: 0; } .hover:hover line { opacity: 0.6; }
.whiskers { max-width: 420px; min-width: 160px; }
.whiskers .tick { font-size: 8.5px; }
.whisker { stroke-width: 2; stroke: currentColor; stroke-linecap: round; }
.w0 { color: var(--soft); } .w1 { color: var(--s1); }
.w0 circle { fill: var(--card); stroke: currentColor; stroke-width: 2; } .w1 circle { fill: currentColor; }
.rollouts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(250px, 100%), 1fr)); gap: 14px; }
.rollout { padding: 12px; min-width: 0; font-size: 13.5px; }
.picture img { display: block; width: 100%; }
.picture { background: #8883; border-radius: 5px; overflow: hidden; margin-bottom: 8px; }
.picture image.tiny { image-rendering: pixelated; }
.picture path { fill-rule: evenodd; vector-effect: non-scaling-stroke; stroke-linejoin: round; fill: none; }
.picture .record { stroke: var(--record); stroke-width: 3.6; fill: var(--record); fill-opacity: 0.12; }
.picture .policy { stroke: var(--policy); stroke-width: 2.4; stroke-dasharray: 6 4; fill: var(--policy); fill-opacity: 0.12; }
.picture .ema { stroke: var(--ema); stroke-width: 2.4; stroke-dasharray: 2 3; fill: var(--ema); fill-opacity: 0.12; }
.picture .judge { stroke: var(--judge); stroke-width: 1.4; fill: var(--judge); fill-opacity: 0.16; }
.picture .halo { stroke: #000; stroke-opacity: 0.45; stroke-width: 4.4; stroke-dasharray: none; fill: none; } .picture .halo.record { stroke: #fff; stroke-opacity: 0.8; stroke-width: 6; }
.picture .halo.judge, .picture .halo.confused { stroke: none; }
.picture .confused { stroke: none; fill: #ff9f1a; fill-opacity: 0.45; }
.picture .point { fill: var(--record); fill-opacity: 1; stroke: #fff; stroke-width: 1.5; stroke-dasharray: none; vector-effect: non-scaling-stroke; } .picture .point.negative { fill: #e00b2d; }
.pictures { display: grid; grid-template-columns: 1fr 1fr; gap: 6px; } .pictures .small { margin: -4px 0 6px; }
.dot { display: inline-block; width: 9px; height: 9px; border-radius: 50%; margin-right: 5px; background: var(--record); } .dot.negative { background: #e00b2d; } .key.confused { background: #ff9f1a; }
.rollout blockquote { margin: 4px 0 8px; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 12em; overflow-y: auto; }
.rollout .small { overflow-wrap: anywhere; }
.rollout table { font-size: 12.5px; } .rollout td, .rollout th { padding: 3px 0; color: var(--soft); } .rollout td { text-align: right; color: var(--ink); }
mark { background: var(--mark); color: var(--ink); border-radius: 3px; }
.problem { color: var(--bad); }
@media (max-width: 700px) { main { padding: 18px 12px 40px; } .eval thead { display: none; } .eval tbody, .eval tr, .eval td { display: block; border: 0; padding: 1px 0; }
  .eval tr { border-bottom: 1px solid var(--line); padding: 8px 0; } .eval tr:last-child { border: 0; } .eval td[data-name]::before { content: attr(data-name); color: var(--soft); display: inline-block; width: 5.5em; font-size: 12.5px; } .eval td.plot { width: 100%; } }
h4 { font-size: 13px; margin: 14px 0 6px; }
.alarm { padding: 10px 14px; margin: 12px 0; border-left: 4px solid var(--bad); } .alarm p { color: inherit; margin: 0 0 8px; max-width: none; }
.pairs { display: grid; grid-template-columns: repeat(auto-fit, minmax(110px, 1fr)); gap: 8px; max-width: 760px; } .pairs > div { max-width: 220px; min-width: 0; }
.behaviour { padding: 8px 16px 4px; overflow-x: auto; } .behaviour td, .behaviour th { vertical-align: middle; } .behaviour details { margin: 0; font-size: 12.5px; }
.pairs blockquote { margin: 2px 0 6px; font-size: 13px; overflow-wrap: anywhere; }
.spark { width: 100px; max-width: 100%; } .spark path { fill: none; stroke: var(--s1); stroke-width: 1.5; }
${chartStyle}@media print { .chart, .rollout { break-inside: avoid; } }
`
