"""The report as one HTML file: nothing is fetched, and it prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from verl_pods_cero.tools.reports.contents import Section
from verl_pods_cero.tools.reports.tables import Table

GENERATOR = '<meta name="generator" content="verl-pods-cero report">'
"""Marks a file as a report of ours, which a later one may replace."""

_LONG_CELL = 36

_STYLE = """
:root { color-scheme: light; }
body { background: #fff; color: #1a1a1a; font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem;
  padding: 0 1rem; }
h1, h2 { line-height: 1.2; }
h2 { border-bottom: 1px solid #ccc; margin-top: 2.5rem; padding-bottom: .2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; margin: 1rem 0; }
caption { font-weight: 600; padding: .3rem 0; text-align: left; }
th, td { border-bottom: 1px solid #ddd; padding: .3rem .7rem .3rem 0; text-align: left; vertical-align: top; }
th, td { white-space: nowrap; }
.long { min-width: 12rem; overflow-wrap: anywhere; white-space: normal; }
thead th { border-bottom: 2px solid #666; }
figure { margin: 1rem 0; }
img { height: auto; max-width: 100%; }
figcaption, footer { color: #444; font-size: .875rem; }
@media print {
  body { font-size: 10pt; margin: 0; max-width: none; padding: 0; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; }
  th, td { padding-right: .4rem; white-space: normal; }
  .long { min-width: 0; }
  thead { display: table-header-group; }
  figure, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""


def page(title: str, made: str, sections: Sequence[Section]) -> str:
    """Return the report as HTML, with its title, what it says, and when and by what it was made."""
    body = "\n".join(line for section in sections for line in _section(section))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{GENERATOR}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{body}
</main>
<footer><p>{escape(made)}</p></footer>
</body>
</html>
"""


def _section(section: Section) -> Iterable[str]:
    yield f"<section><h2>{escape(section.heading)}</h2>"
    yield from (f"<p>{escape(paragraph)}</p>" for paragraph in section.paragraphs)
    for table in section.tables:
        yield from _table(table)
    for image in section.images:
        caption = f"<figcaption>{escape(image.caption)}</figcaption>"
        yield f'<figure><img src="{image.uri}" alt="{escape(image.alt)}">{caption}</figure>'
    yield "</section>"


def _table(table: Table) -> Iterable[str]:
    # a region that scrolls must be reached by the keyboard, and have a name
    yield f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.caption)}">'
    yield f"<table><caption>{escape(table.caption)}</caption>"
    yield "<thead><tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in table.header) + "</tr></thead>"
    yield "<tbody>"
    for first, *others in table.rows:
        cells = "".join(f"<td{_width(cell)}>{escape(cell)}</td>" for cell in others)
        yield f'<tr><th scope="row"{_width(first)}>{escape(first)}</th>{cells}</tr>'
    yield "</tbody></table></div>"


def _width(cell: str) -> str:
    """Let long cells wrap, and numbers never."""
    return ' class="long"' if len(cell) > _LONG_CELL else ""
