"""The account of a preparation: what was read, and what became of every row."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from verl_pods_cero.tools.datasets.records import Record


@dataclass
class Tally:
    """Counts, and the row numbers of everything rejected.

    >>> tally = Tally(read=2, kept=1)
    >>> tally.reject(Record("train.jsonl", 7, None), "is not JSON")
    >>> print(tally.report())
    read 2 rows, kept 1
    rejected 1: is not JSON: train.jsonl row 7
    """

    read: int = 0
    kept: int = 0
    duplicates: int = 0
    unlabelled: int = 0
    not_wanted: Counter[str] = field(default_factory=Counter)
    rejected: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    conflicts: list[tuple[Record, Record]] = field(default_factory=list)

    def reject(self, record: Record, reason: str) -> None:
        """Note a row that cannot be used."""
        self.rejected[reason].append(record)

    def report(self) -> str:
        """Say all of it, in lines; lines that would say zero are left out."""
        lines = [f"read {self.read} rows, kept {self.kept}"]
        if self.duplicates:
            lines.append(f"removed {self.duplicates} duplicates (same question, same answer)")
        lines += [f"left out {count}: {reason}" for reason, count in self.not_wanted.most_common()]
        if self.unlabelled:
            lines.append(f"took {self.unlabelled} rows that do not say their domain and level")
        for first, second in self.conflicts:
            lines.append(f"kept both, with different answers to one question: {_place(first)}, {_place(second)}")
        for reason, records in self.rejected.items():
            lines.append(f"rejected {len(records)}: {reason}: {_places(records)}")
        return "\n".join(lines)


def _place(record: Record) -> str:
    return f"{record.file} row {record.row}"


def _places(records: list[Record]) -> str:
    rows: dict[str, list[int]] = defaultdict(list)
    for record in records:
        rows[record.file].append(record.row)
    listed = []
    for file, numbers in rows.items():
        word = "rows" if len(numbers) > 1 else "row"
        listed.append(f"{file} {word} {', '.join(map(str, numbers))}")
    return "; ".join(listed)
