"""The looks of a report: wide on a desk, one column on a telephone, plain on paper."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { --ink: #222; --soft: #555; --rule: #ddd; --pale: #f6f7f9; --good: #1a7f37; --bad: #b3261e; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; color: var(--ink);
  background: #fff; max-width: 76em; margin: 0 auto; padding: 1.5em 1.2em 4em; }
h1 { font-size: 1.9em; line-height: 1.2; margin: 0 0 .2em; }
h2 { font-size: 1.35em; margin: 2em 0 .5em; padding-bottom: .2em; border-bottom: 2px solid var(--rule); }
h3 { font-size: 1.05em; margin: 1.4em 0 .4em; }
header p { margin: .2em 0; }
a { color: #1b5e94; }
.note { color: var(--soft); font-size: .9em; }
.findings { padding: 0; list-style: none; display: grid; gap: .5em; }
.findings li { background: var(--pale); border-left: 4px solid #1b6ca8; padding: .5em .8em; }
.findings li.warning { border-color: #c77d0a; background: #fff7e8; }
.wide { overflow-x: auto; margin: 1em 0; }
table { border-collapse: collapse; font-size: .88em; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3em 0; }
th, td { border-bottom: 1px solid var(--rule); padding: .35em .55em; text-align: right; vertical-align: top;
  white-space: nowrap; }
thead th { background: var(--pale); font-weight: 600; white-space: normal; min-width: 4em; }
th:first-child { text-align: left; font-weight: 400; }
thead th:first-child { font-weight: 600; }
small { color: var(--soft); }
.worse, small.worse { color: var(--bad); }
.better, small.better { color: var(--good); }
.same, small.same { color: #777; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26em), 1fr)); gap: 1.2em; }
figure { margin: 0; break-inside: avoid; max-width: 35em; }
figure svg { width: 100%; height: auto; display: block; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2em 1.4em; padding: 0; margin: .6em 0 1em; }
.swatch { width: 24px; height: 8px; vertical-align: middle; }
details { margin: .8em 0; }
summary { cursor: pointer; color: #1b5e94; }
dt { font-weight: 600; }
dd { margin: 0 0 .5em; }
pre { background: var(--pale); padding: .8em; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
#environment td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
@media (max-width: 40em) {
  body { font-size: 15px; padding: 1em .8em 3em; }
  h1 { font-size: 1.5em; }
  .legend { flex-direction: column; }
  th, td { padding: .3em .45em; }
  .wide tbody th { position: sticky; left: 0; background: #fff; white-space: normal; min-width: 6.5em; }
}
@media print {
  body { font-size: 10pt; max-width: none; padding: 0; }
  a { color: inherit; text-decoration: none; }
  section { break-inside: auto; }
  h2, h3, caption { break-after: avoid; }
  tr, .findings li { break-inside: avoid; }
  .wide { overflow: visible; }
  table { font-size: 7.5pt; }
  th, td { white-space: normal; padding: .2em .35em; }
  .charts { grid-template-columns: 1fr 1fr; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
"""
