"""The report's tables and remarks in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from verl_pods_cero.tools.reports.contents import Section
from verl_pods_cero.tools.reports.tables import Table

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH_IN_A_FILE = 200


def wide_console() -> Console:
    """Return a console as wide as the terminal, or wide enough for tables where the output goes into a file."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH_IN_A_FILE)


def show(sections: Sequence[Section]) -> None:
    """Print the sections that need no figure."""
    console = wide_console()
    for section in sections:
        if section.images and not section.tables:
            continue
        console.print(f"\n{section.heading}", style="bold", markup=False, highlight=False)
        for paragraph in section.paragraphs:
            console.print(paragraph, markup=False, highlight=False)
        for table in section.tables:
            console.print(_rich(table))


def _rich(table: Table) -> object:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(title=Text(table.caption), title_justify="left", box=box.SIMPLE_HEAD)
    for name in table.header:
        made.add_column(Text(name), overflow="fold")
    for row in table.rows:
        made.add_row(*(Text(cell) for cell in row))
    return made
