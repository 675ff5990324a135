"""The command that writes a data set: its options and its run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from verl_pods_cero.errors import OptionError
from verl_pods_cero.rewards.math_process import INSTALL, has_math_verify
from verl_pods_cero.tools.command_line import exit_status, refuse_to_overwrite
from verl_pods_cero.tools.datasets.catalog import CATALOG, Catalogued, find
from verl_pods_cero.tools.datasets.choices import DOMAINS, LEVELS, Selection
from verl_pods_cero.tools.datasets.parquet_files import verl_row, write
from verl_pods_cero.tools.datasets.preparation import Found, divide, fitting, prepare
from verl_pods_cero.tools.datasets.prompts import STYLES, load_tokenizer, render
from verl_pods_cero.tools.datasets.records import Record, find_files, read_files, read_hub
from verl_pods_cero.tools.datasets.tally import Tally


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Write a data set as parquet files in verl's schema."""
    add = parser.add_argument
    add("name", help=f"data set: {', '.join(CATALOG)}")
    add("--source", nargs="+", type=Path, metavar="PATH", help="local .jsonl, .json or .parquet files, or folders")
    add("--hub", metavar="REPOSITORY[:CONFIGURATION]", help="another repository on the Hugging Face hub")
    add("--output", type=Path, metavar="DIRECTORY", help="for train.parquet and test.parquet (data/<name>)")
    add("--split", choices=("train", "test"), help="which split these rows are")
    add("--test-fraction", type=float, metavar="F", help="share of the questions set aside as test split")
    add("--seed", type=int, default=42, help="seed of that division (%(default)s)")
    add("--style", choices=STYLES, default=STYLES[0], help="native, or tags for PODS' shaped reward")
    add("--domain", nargs="+", metavar="D", help=f"sciknoweval: {', '.join(DOMAINS)} (chemistry)")
    add("--level", nargs="+", metavar="L", help=f"sciknoweval: {', '.join(LEVELS)} (L3)")
    remove = argparse.BooleanOptionalAction
    add("--deduplicate", action=remove, help="remove rows that repeat a question and its answer (DAPO, AIME and AMC)")
    add("--max-rejected", type=float, metavar="F", help="share of rows that may be rejected (0.1; 9 rows always may)")
    add("--limit", type=int, metavar="N", help="stop after N usable rows")
    add("--tokenizer", metavar="MODEL", help="model or folder whose chat template renders the sample")
    add("--force", action="store_true", help="replace files that are there")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit status: 0, 1 for a failure or 2 for bad use, with the error on stderr."""
    return exit_status(lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    entry = _entry(args)
    selection = _selection(args, entry)
    split, fraction = _splits(args, entry)
    if args.max_rejected is not None and not 0 <= args.max_rejected <= 1:
        raise OptionError("--max-rejected", "must be a share from 0 to 1", args.max_rejected, "use 0.1")
    if args.limit is not None and args.limit < 1:
        raise OptionError("--limit", "must be at least 1", args.limit, "leave it out for all rows")
    paths = _outputs(args, entry, ("train", "test") if fraction else (split,))
    tokenizer = load_tokenizer(args.tokenizer)

    tally = Tally()
    found = prepare(_records(args, entry, split), entry, selection, args.limit, tally)
    print(tally.report())
    _check_rejections(tally, args.max_rejected)
    parts = _parts(found, split, fraction, args.seed)
    rows = {
        name: [verl_row(one, entry, name, index, args.style) for index, one in enumerate(part)]
        for name, part in parts.items()
    }
    # before anything is written: a template may refuse the prompts
    samples = {name: render(own[0]["prompt"], tokenizer) for name, own in rows.items()}
    write({paths[name]: own for name, own in rows.items()})
    for name, own in rows.items():
        print(f"wrote {len(own)} rows to {paths[name]}")
        print("sample row:", json.dumps(own[0], ensure_ascii=False, indent=2))
        print("rendered prompt:", samples[name], sep="\n")
    print("score it with: reward.custom_reward_function.path=pkg://verl_pods_cero.rewards")
    if entry.answers in ("latex", "integer") and not has_math_verify():
        print(f"note: its scorer needs math-verify, which is not installed here: {INSTALL}")


def _outputs(args: argparse.Namespace, entry: Catalogued, names: tuple[str, ...]) -> dict[str, Path]:
    output: Path = args.output or Path("data") / entry.name
    if output.suffix == ".parquet" or output.is_file():
        raise OptionError("--output", "must be a directory", str(output), f"use {output.parent}")
    paths = {name: output / f"{name}.parquet" for name in names}
    for path in paths.values():
        if path.is_dir():
            raise OptionError("--output", "must not hold a folder of that name", str(path), "name another")
        refuse_to_overwrite(path, "--output", overwrite=args.force, flag="--force", rule="must not hold the file yet")
    return paths


def _parts(found: list[Found], split: str, fraction: float, seed: int) -> dict[str, list[Found]]:
    if not fraction:
        return {split: found}
    train, test = divide(found, fraction, seed)
    if not train or not test:
        sizes = f"{len(train)} for training and {len(test)} for testing"
        raise OptionError("--test-fraction", f"must leave rows on both sides, not {sizes}", fraction, "use 0")
    return {"train": train, "test": test}


def _check_rejections(tally: Tally, most: float | None) -> None:
    count = tally.rejections()
    # a few bad rows are no sign of a file of another kind
    allowed = max(9.0, 0.1 * tally.read) if most is None else most * tally.read
    if tally.kept and count <= allowed:
        return
    other = fitting(record for records in tally.rejected.values() for record in records) if count else ""
    hint = f"the rejected ones are rows of {other}: name that" if other else "see above what became of its rows"
    if not tally.kept:
        raise OptionError("--source", "must hold usable rows", 0, hint)
    rule = f"must hold usable rows, but for {allowed:.0f} of them"
    received = f"{count} of {tally.read} rows rejected"
    raise OptionError("--source", rule, received, f"{hint}; --max-rejected 1 leaves them out")


def _records(args: argparse.Namespace, entry: Catalogued, split: str) -> Iterator[Record]:
    from tqdm import tqdm  # type: ignore[import-untyped]

    if args.source:
        # a saved data set may name its splits as the hub does
        records = read_files(find_files(args.source, (split, entry.hub_splits.get(split, split))))
    else:
        records = read_hub(entry, split)
    # disable=None: no bar where stderr is a file
    yield from tqdm(records, unit="row", desc=entry.name, disable=None)


def _entry(args: argparse.Namespace) -> Catalogued:
    entry = find(args.name)
    if args.deduplicate is not None:
        entry = replace(entry, deduplicate=args.deduplicate)
    if args.hub is None:
        return entry
    if args.source:
        raise OptionError("--hub", "excludes --source", args.hub, "give one of them")
    repository, _, configuration = args.hub.partition(":")
    return replace(entry, hub=repository, hub_config=configuration or None)


def _selection(args: argparse.Namespace, entry: Catalogued) -> Selection:
    given = {}
    if args.domain:
        given["domains"] = tuple(domain.lower() for domain in args.domain)
    if args.level:
        given["levels"] = tuple(level.upper() for level in args.level)
    if given and entry.answers != "letter":
        raise OptionError("--domain and --level", "belong to sciknoweval", entry.name, "leave them out")
    return Selection(**given)


def _splits(args: argparse.Namespace, entry: Catalogued) -> tuple[str, float]:
    """Return the split that the rows are, and the share of them to set aside as test."""
    fraction = args.test_fraction
    if fraction is None:
        fraction = 0.0 if args.split else entry.test_fraction
    if not 0 <= fraction < 1:
        raise OptionError("--test-fraction", "must be at least 0 and below 1", fraction, "use 0.1")
    if fraction and args.split:
        raise OptionError("--split", "excludes --test-fraction, which writes both", args.split, "drop one")
    return args.split or entry.split, fraction
