"""The tables of a dry run: this run next to plain GRPO."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_pods_cero.core.settings import AllocatorSettings
from verl_pods_cero.options.schema import BASE_MODES
from verl_pods_cero.tools.dry_run import memory
from verl_pods_cero.tools.dry_run.checks import Checked
from verl_pods_cero.tools.dry_run.memory import Update
from verl_pods_cero.tools.dry_run.work import Work, plain_work, run_work
from verl_pods_cero.tools.reports.contents import Section
from verl_pods_cero.tools.reports.tables import Table, count

Value = float | str | None
Row = tuple[str, Value, Value, Callable[[float], str]]

UNKNOWN = "unknown"


def sections(name: str, checked: Checked) -> list[Section]:
    """Return what is printed of one run."""
    work, settings = run_work(checked)
    plain = plain_work(checked.config, checked.data_rows)
    pair = _Pair(checked, work, plain)
    tables = [pair.table("A step", _step(pair)), pair.table("The run", _run(pair)), pair.table("Memory", _memory(pair))]
    if settings is not None:
        tables.insert(2, _allocator_table(checked, settings))
    return [Section(name, (*_remarks(pair), *checked.notes), tables)]


class _Pair:
    """This run and the plain one: the header, and how a row is written."""

    def __init__(self, checked: Checked, work: Work | None, plain: Work) -> None:
        self.checked, self.work, self.plain = checked, work, plain
        self.update = None if work is None else memory.update(checked, work)
        self.plain_update = memory.update(checked, plain)
        self.differs = checked.options.filter.enable or checked.options.allocator.enable

    def of_work(self, label: str, read: Callable[[Work], Value], write: Callable[[float], str] = count) -> Row:
        return label, None if self.work is None else read(self.work), read(self.plain), write

    def of_update(self, label: str, read: Callable[[Update], Value], write: Callable[[float], str] = count) -> Row:
        return label, None if self.update is None else read(self.update), read(self.plain_update), write

    def bound(self, label: str) -> str:
        """Mark a number of a step that is a bound in this run."""
        return label if self.work is None or self.work.exact else f"{label}, at most"

    def table(self, caption: str, rows: Sequence[Row]) -> Table:
        plain = "plain GRPO" if "grpo" in str(self.checked.config.algorithm.adv_estimator) else "without the plugin"
        header = ("", "this run", plain, "this / plain") if self.differs else ("", "this run")
        return Table(caption, header, tuple(_cells(row)[: len(header)] for row in rows))


def _step(pair: _Pair) -> list[Row]:
    config = pair.checked.config
    response = int(config.data.max_response_length)
    passes = memory.log_prob_passes(pair.checked)
    rows = [
        pair.of_work(pair.bound("prompts"), lambda work: work.prompts),
        pair.of_work(pair.bound("rollouts generated"), lambda work: work.rollouts),
        pair.of_work("tokens generated, at most", lambda work: work.rollouts * response),
        pair.of_work(pair.bound("rows in the update"), lambda work: work.rows),
        pair.of_update("padded to a multiple of", lambda update: update.multiple),
        pair.of_work("tokens in the update, at most", lambda work: memory.update_tokens(config, work.rows)),
    ]
    if passes:
        label = f"rows in passes without gradient ({', '.join(passes)})"
        rows.append(pair.of_update(pair.bound(label), lambda update: update.log_prob_rows))
    rows.append(pair.of_update("optimiser updates", lambda update: update.updates))
    if pair.checked.use_critic:
        rows.append(pair.of_update("optimiser updates of the critic", lambda update: update.critic_updates))
    return [
        *rows,
        pair.of_update(pair.bound("rows an update"), lambda update: update.rows),
        pair.of_update(pair.bound("rows an update on a GPU"), lambda update: update.gpu_rows),
        pair.of_update("micro-batches an update on a GPU, at most", lambda update: update.split.count),
    ]


def _run(pair: _Pair) -> list[Row]:
    config, data_rows = pair.checked.config, pair.checked.data_rows
    response = int(config.data.max_response_length)
    n = int(config.actor_rollout_ref.rollout.n)

    def updates(work: Work | None, update: Update | None) -> Value:
        return None if work is None or update is None or work.steps is None else work.steps * update.updates

    def epochs(work: Work) -> Value:
        return None if data_rows is None or work.all_rollouts is None else work.all_rollouts / (data_rows * n)

    known = "" if data_rows is None else f" of M = {data_rows:,} prompts"
    return [
        pair.of_work("steps, at most", lambda work: work.steps),
        ("optimiser updates, at most", updates(pair.work, pair.update), updates(pair.plain, pair.plain_update), count),
        pair.of_work("rollouts generated, at most", lambda work: work.all_rollouts),
        pair.of_work(
            "tokens generated, at most", lambda work: _if_known(lambda rollouts: rollouts * response, work.all_rollouts)
        ),
        pair.of_work("rows in updates, at most", lambda work: work.all_rows),
        pair.of_work(
            "tokens in updates, at most",
            lambda work: _if_known(lambda rows: memory.update_tokens(config, rows), work.all_rows),
        ),
        pair.of_work(f"epochs{known}: rollouts / (M n)", epochs, lambda value: f"{value:,.2f}"),
    ]


def _memory(pair: _Pair) -> list[Row]:
    config = pair.checked.config
    of_a_token = memory.token_logits_bytes(config)

    def logits(tokens: int) -> Value:
        return tokens * of_a_token if isinstance(of_a_token, int) else UNKNOWN

    def sequences(work: Work) -> int:
        return memory.engine_sequences(config, work.rollouts)

    longest = memory.longest_sequence(config)
    rows = [
        ("longest sequence, tokens", longest, longest, count),
        pair.of_update("rows of a micro-batch, at full length", lambda update: update.split.rows),
        pair.of_update("tokens of a micro-batch, at most", lambda update: update.split.tokens),
        pair.of_update("logits of a micro-batch, at most", lambda update: logits(update.split.tokens), size),
        pair.of_update("tokens of a log-prob micro-batch, at most", lambda update: update.log_prob_split.tokens),
        pair.of_update(
            "logits of a log-prob micro-batch, at most", lambda update: logits(update.log_prob_split.tokens), size
        ),
        pair.of_work("sequences in an engine at a time, at most", sequences),
        pair.of_work("their KV-cache tokens, at most", lambda work: memory.cache_tokens(config, sequences(work))),
    ]
    if config.trainer.v1.trainer_mode in BASE_MODES:
        rows.append(
            pair.of_work("values that the driver reads", lambda work: work.rollouts * memory.DRIVER_BYTES, size)
        )
    return rows


def _allocator_table(checked: Checked, settings: AllocatorSettings) -> Table:
    rows = {
        "allocator": f"{checked.options.allocator.name}, schedule {settings.schedule}",
        "B, budget of the run, rollouts": count(settings.budget_units * settings.unit),
        "K, rounds": count(settings.rounds),
        "C, capacity of a round, rollouts": count(settings.capacity_units * settings.unit),
        "N_max, most rollouts of a prompt in a round": count(settings.n_max_units * settings.unit),
        "g, rollouts handed out together": count(settings.unit),
        "M, prompts": count(settings.num_prompts),
    }
    return Table("Allocator", ("", "this run"), tuple(rows.items()))


def _remarks(pair: _Pair) -> list[str]:
    remarks = [
        "Plain: the same recipe without filter and allocator." if pair.differs else "Filter and allocator are off."
    ]
    logits = memory.token_logits_bytes(pair.checked.config)
    return remarks if isinstance(logits, int) else [*remarks, f"Logits are unknown: {logits}."]


def size(number: float) -> str:
    """Write a number of bytes.

    >>> size(131072), size(9.3 * 2**30)
    ('128 KiB', '9.3 GiB')
    """
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} GiB" if number < 1000 else f"{number:,.0f} GiB"


def _cells(row: Row) -> tuple[str, str, str, str]:
    label, this, plain, write = row

    def cell(value: Value) -> str:
        return UNKNOWN if value is None else value if isinstance(value, str) else write(value)

    numbers = isinstance(this, int | float) and isinstance(plain, int | float) and plain
    share = f"{100 * this / plain:.3g} %" if numbers and this != plain else ""  # type: ignore[operator]
    return label, cell(this), cell(plain), share


def _if_known(of: Callable[[int], Value], number: int | None) -> Value:
    return None if number is None else of(number)
