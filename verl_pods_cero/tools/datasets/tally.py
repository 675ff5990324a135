"""The account of a preparation: what was read, and what became of every row."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby, islice

from verl_pods_cero.tools.datasets.records import Record

# A file of another kind has as many reasons and places as rows.
_MOST = 20
_LONGEST = 300


@dataclass
class Tally:
    """Counts, and the row numbers of everything rejected or doubtful.

    >>> tally = Tally(read=5, kept=1)
    >>> for row in (2, 3, 4, 7):
    ...     tally.reject(Record("train.jsonl", row, None), "is not JSON")
    >>> print(tally.report())
    read 5 rows, kept 1
    rejected 4: is not JSON: train.jsonl rows 2-4, 7
    """

    read: int = 0
    kept: int = 0
    duplicates: int = 0
    not_wanted: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    rejected: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    warnings: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    samples: dict[str, str] = field(default_factory=dict)
    conflicts: list[tuple[Record, Record]] = field(default_factory=list)

    def reject(self, record: Record, reason: str) -> None:
        """Note a row that cannot be used."""
        self.rejected[reason].append(record)

    def warn(self, record: Record, what: str, sample: str = "") -> None:
        """Note a row that is kept and should be looked at; the first one's sample is shown."""
        self.warnings[what].append(record)
        self.samples.setdefault(what, sample)

    def rejections(self) -> int:
        """Return how many rows were rejected."""
        return sum(map(len, self.rejected.values()))

    def report(self) -> str:
        """Say all of it, in lines; lines that would say zero are left out, and long lists are cut."""
        lines = [f"read {self.read} rows, kept {self.kept}"]
        if self.duplicates:
            lines.append(f"removed {self.duplicates} duplicates (same question, same answer)")
        lines += _most(f"left out {count}: {reason}" for reason, count in self.not_wanted.most_common())
        lines += _most(f"took {count} rows {what}" for what, count in self.taken.most_common())
        lines += _most(
            f"kept both, with different answers to one question: {_place(first)}, {_place(second)}"
            for first, second in self.conflicts
        )
        lines += _most(f"rejected {len(own)}: {why}: {_places(own)}" for why, own in self.rejected.items())
        for what, own in self.warnings.items():
            lines.append(f"warning: {len(own)} rows {what}: {_places(own)}")
            if sample := self.samples[what]:
                lines.append(f"  such as: {_short(sample)!r}")
        # what a row says of itself may be no text that a terminal takes
        return "\n".join(lines).encode(errors="backslashreplace").decode()


def _most(lines: Iterable[str]) -> list[str]:
    every = list(lines)
    more = [f"... and {len(every) - _MOST} lines like this one"] if len(every) > _MOST else []
    return [_short(line) for line in every[:_MOST]] + more


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _place(record: Record) -> str:
    return f"{record.file} row {record.row}"


def _places(records: list[Record]) -> str:
    listed = []
    for file, own in groupby(sorted(records, key=lambda record: (record.file, record.row)), lambda each: each.file):
        rows = [record.row for record in own]
        # consecutive rows keep their distance from their place in the list
        runs = groupby(enumerate(rows), lambda pair: pair[1] - pair[0])
        spans = [[row for _, row in run] for _, run in runs]
        words = [str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in islice(spans, _MOST)]
        more = ", ..." if len(spans) > _MOST else ""
        listed.append(f"{file} {'rows' if len(rows) > 1 else 'row'} {', '.join(words)}{more}")
    return "; ".join(listed)
