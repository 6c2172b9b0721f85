"""The style sheet of a report: light and dark mode, from the width of a phone up, and for printing."""

COLOURS = (
    ("#0b62a8", "#6db3f2"),
    ("#c2410c", "#fb923c"),
    ("#117a4b", "#4ade80"),
    ("#a21caf", "#e879f9"),
    ("#8a6d00", "#facc15"),
    ("#0e7490", "#22d3ee"),
    ("#be123c", "#fb7185"),
    ("#52525b", "#c4c4cc"),
)
"""Line colours in light and dark mode; each has a contrast of at least 4.5 with the background."""


def _colours(side: int) -> str:
    return " ".join(f"--c{number}: {pair[side]};" for number, pair in enumerate(COLOURS))


_LINES = "\n".join(f".c{number} {{ --line: var(--c{number}); }}" for number in range(len(COLOURS)))

STYLE = f"""
:root {{
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1c2430; --soft: #56606e; --rule: #d5dae1; --best: #e3f4e8; --link: #0b5cad;
  --shadow: 11 98 168; {_colours(0)}
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --paper: #12161c; --ink: #e6eaf0; --soft: #a3adba; --rule: #333c48; --best: #16392a; --link: #7cbcff;
    --shadow: 90 165 240; {_colours(1)}
  }}
}}
* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }}
body {{
  margin: 0 auto; max-width: 76rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}}
h1 {{ font-size: 1.6rem; line-height: 1.2; margin: 0.5rem 0; }}
h2 {{ font-size: 1.25rem; margin: 2.5rem 0 0.5rem; border-top: 1px solid var(--rule); padding-top: 1rem; }}
h3 {{ font-size: 1.05rem; margin: 1.75rem 0 0.5rem; }}
a {{ color: var(--link); }}
nav ul {{ list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; }}
nav a {{ display: inline-block; padding: 0.25rem 0; }}
figure {{ margin: 1rem 0; }}
figcaption {{ font-weight: 600; margin-bottom: 0.4rem; }}
.scroll {{ overflow-x: auto; width: fit-content; max-width: 100%; border: 1px solid var(--rule); border-radius: 4px; }}
table {{ border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; font-size: 0.9rem; }}
th, td {{
  padding: 0.35rem 0.6rem; text-align: right; vertical-align: top; border-bottom: 1px solid var(--rule);
  overflow-wrap: normal;
}}
td {{ white-space: nowrap; background: rgb(var(--shadow) / calc(var(--shade, 0) * 0.5)); }}
td small {{ color: var(--soft); font-size: 0.8em; display: block; }}
td.best {{ background: var(--best); }}
thead th {{ vertical-align: bottom; font-weight: 600; min-width: 4rem; max-width: 10rem; }}
thead th.long {{ min-width: 8rem; }}
th:first-child {{
  position: sticky; left: 0; text-align: left; background: var(--paper); border-right: 1px solid var(--rule);
  font-weight: 500; min-width: min(8rem, 36vw); max-width: min(18rem, 38vw); overflow-wrap: anywhere;
}}
tbody tr:last-child > * {{ border-bottom: 0; }}
table.words td, table.words th {{ text-align: left; }}
table.words td {{ white-space: normal; max-width: 28rem; overflow-wrap: break-word; }}
abbr {{ text-decoration: none; }}
.notes {{ margin: 0.4rem 0 0; padding-left: 1.1rem; color: var(--soft); font-size: 0.85rem; }}
details {{ margin: 0.4rem 0; border: 1px solid var(--rule); border-radius: 4px; padding: 0 0.75rem; }}
summary {{ cursor: pointer; padding: 0.5rem 0; font-weight: 500; }}
pre {{
  overflow-x: auto; border: 1px solid var(--rule); border-radius: 4px; padding: 0.6rem; font-size: 0.82rem;
  overflow-wrap: normal;
}}
:focus-visible {{ outline: 2px solid var(--link); outline-offset: 1px; }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 0.75rem; }}
.charts svg {{ width: 100%; height: auto; max-width: 34rem; }}
.legend {{ list-style: none; padding: 0; margin: 0.5rem 0; display: flex; flex-wrap: wrap; gap: 0.15rem 1rem;
  font-size: 0.85rem; }}
.legend svg {{ width: 2rem; height: 0.6rem; margin-right: 0.4rem; }}
svg text {{ font: 11px system-ui, sans-serif; fill: var(--ink); }}
svg .title {{ font-weight: 600; font-size: 12px; }}
svg .grid {{ stroke: var(--rule); stroke-width: 1; fill: none; }}
svg .line {{ stroke: var(--line); stroke-width: 1.6; fill: none; stroke-linejoin: round; }}
svg .dot {{ fill: var(--line); }}
svg .ring {{ stroke: var(--line); stroke-width: 1.6; fill: var(--paper); }}
svg .dash1 {{ stroke-dasharray: 5 3; }}
svg .dash2 {{ stroke-dasharray: 1.5 2.5; }}
{_LINES}
@media print {{
  :root {{
    color-scheme: light; --paper: #fff; --ink: #000; --soft: #444; --rule: #bbb; --best: #e3f4e8; {_colours(0)}
  }}
  body {{ max-width: none; padding: 0; font-size: 9.5pt; }}
  nav {{ display: none; }}
  .scroll, pre {{ overflow: visible; }}
  pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
  table {{ font-size: 7pt; }}
  th, td {{ padding: 1.5pt 2.5pt; }}
  thead th {{ min-width: 0; }}
  th:first-child {{ position: static; min-width: 4rem; max-width: 10rem; }}
  tr, svg {{ break-inside: avoid; }}
  h2, h3, figcaption {{ break-after: avoid; }}
  td, svg {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
  details::details-content {{ content-visibility: visible; display: block; block-size: auto; }}
}}
"""
