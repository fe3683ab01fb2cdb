"""``confide demo``: the main job on a real table, from file to report, under a ledger."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide.errors import BudgetError, LedgerError, ParameterError

if TYPE_CHECKING:
    from confide.ledger import Ledger
    from confide.report.measured import Error, Share
    from confide.schema import Table
    from confide.training import TrainingResult

EPSILONS = ("0.1", "0.25", "0.5", "1", "2", "4")
DELTA = "1e-6"
#: Wages rise with experience and then fall: squares of the public numbers, which cost nothing to use.
DEGREE = 2
#: One row in five is held out.
HELD_OUT = 0.2
TEST_DECLARED_BY = "the Confide developers, for this demonstration"
TEST_REASON = (
    "The wage table is a public-domain extract of a public survey. Which rows are held out follows from "
    "the row number alone."
)
REFERENCE_REASON = "We can show it because the table is in the public domain; on a real table nobody could."
SPLIT_RULE = "row number times 2654435761, modulo 2^32, below a fifth of 2^32"


def demo(
    epsilon: Annotated[
        list[str] | None,
        typer.Option("--epsilon", "-e", help="May be given several times; default 0.1, 0.25, 0.5, 1, 2, 4."),
    ] = None,
    delta: Annotated[str, typer.Option(help="Of every release.")] = DELTA,
    report: Annotated[Path, typer.Option(help="Where to write the HTML report.")] = Path("demo-report.html"),
    ledger: Annotated[
        str | None,
        typer.Option(
            help="Store of the demonstration's ledger, e.g. sqlite:///my.db; each run opens a new dataset in "
            "it, unless #name is given. Default: demo-ledger.db beside the report.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed the noise, for tests: results are then not private, and no ledger takes them."
        ),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option(
            help="Copy the table and its schema (wages.parquet, wages.toml) to this folder and stop."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Fit private wage models on a packaged table, compare them, and write a report."""
    if files is not None:
        _copy_files(files, as_json)
        return
    from rich.console import Console

    console = Console(quiet=as_json, highlight=False)
    outcome = run_demo(
        tuple(epsilon or EPSILONS), delta=delta, report=report, ledger=ledger, seed=seed, console=console
    )
    if as_json:
        typer.echo(json.dumps(outcome))


def _copy_files(folder: Path, as_json: bool) -> None:
    """Give the user the demonstration's files, to try the other commands on; overwrite nothing else."""
    import shutil

    from confide.data import cps1988

    folder.mkdir(parents=True, exist_ok=True)
    targets = [folder / f"wages{path.suffix}" for path in cps1988()]
    for source, target in zip(cps1988(), targets, strict=True):
        if target.exists() and target.read_bytes() != source.read_bytes():
            raise ParameterError(
                f"The file {target} exists and is another.", "Move it, or name another folder."
            )
        shutil.copyfile(source, target)
    if as_json:
        typer.echo(json.dumps({"ok": True, "files": [str(target) for target in targets]}))
    else:
        typer.echo("Wrote " + " and ".join(str(target) for target in targets) + ".")


@dataclass(frozen=True)
class Row:
    """What one epsilon gave: the fit and the mean, both private, and their errors on the test rows."""

    fit: TrainingResult
    mean: TrainingResult
    error: Error
    mean_error: Error
    reference_error: Error

    @property
    def epsilon(self) -> Fraction:
        """Of the fit, and of the mean."""
        assert isinstance(self.fit.guarantee.epsilon, Fraction)
        return self.fit.guarantee.epsilon

    @property
    def noise(self) -> float:
        """Mean squared error that the noise is predicted to add, from public quantities."""
        return self.fit.noise_error(float(self.epsilon)) ** 2

    @property
    def kept(self) -> Share | None:
        """Share of the non-private gain over the private mean, measured."""
        from confide.report.measured import share_kept

        return share_kept(self.error, self.mean_error, self.reference_error)

    @property
    def expected(self) -> float:
        """The same share, if noise adds exactly what is predicted."""
        gain = self.mean_error.squared - self.reference_error.squared
        return 1 - self.noise / gain if gain > 0 else math.nan


def run_demo(
    epsilons: Sequence[str],
    *,
    delta: str = DELTA,
    report: Path = Path("demo-report.html"),
    ledger: str | None = None,
    seed: int | None = None,
    console: Any = None,
) -> dict[str, Any]:
    """Run the demonstration and return its figures as plain values.

    Parameters
    ----------
    epsilons : sequence of str
        Of the releases; exact decimals. Each is spent twice: on a fit, and on the mean it is compared with.
    delta : str
    report : Path
    ledger : str, optional
    seed : int, optional
    console : rich Console, optional
        Where steps are printed; None prints nothing.

    Raises
    ------
    ParameterError
        If an epsilon is not a positive number, or is given twice.
    """
    from rich.console import Console

    from confide.data import cps1988
    from confide.privacy import exact, show
    from confide.report import PublicTest, summary, write_report
    from confide.report.measured import measure
    from confide.schema import Schema, Table
    from confide.training import train

    if console is None:
        console = Console(quiet=True)
    amounts = sorted(exact(text, "epsilon") for text in epsilons)
    if not amounts or amounts[0] == 0 or len(set(amounts)) < len(amounts):
        raise ParameterError(
            f"The 'epsilon' parameter is {', '.join(epsilons)!r:.200}.", "Pass positive numbers, each once."
        )

    if report.is_dir():
        raise ParameterError(
            f"The report's path {report} is a folder.", f"Name a file: {report / 'demo.html'}."
        )

    path, schema_path = cps1988()
    schema = Schema.load(schema_path)
    label = schema.label
    assert label is not None
    _print_schema(console, schema)
    whole = Table.read(path, schema)
    held_out = held_out_rows(whole.n_rows)
    training, test = whole.take(~held_out), whole.take(held_out)
    console.print(
        f"[bold]2. Split.[/] {training.n_rows:,} rows to learn from; {test.n_rows:,} held out by a public "
        f"rule ({SPLIT_RULE}). We [bold]declare the labels of the held-out rows public for this "
        "demonstration[/]: they measure errors, and are not charged. On your data, leave this out, or "
        "declare only what is public.\n"
    )
    # The mean is a fit without columns: the same front door, the same exact noise, a charge of its own.
    label_only = Schema(columns=(label,), name=schema.name, declared_by=schema.declared_by)
    mean_table = Table(label_only, {label.name: training.values(label.name)}, training.n_rows)

    budget = (2 * sum(amounts, Fraction(0)), 2 * len(amounts) * exact(delta, "delta"))
    book, place = (None, "") if seed is not None else open_ledger(ledger, report, budget, training)
    if book is not None:
        book.grant("modeller", budget[0] / 2, budget[1] / 2)
        book.grant("baseline", budget[0] / 2, budget[1] / 2)
    _print_ledger(console, book, place, budget, len(amounts))

    reference = train(training, epsilon=math.inf, delta=delta, nonprivate=True, degree=DEGREE)
    reference_error = measure(reference, test)

    chosen = min(amounts, key=lambda e: (abs(math.log(e)), e))
    before: dict[str, Any] | None = None
    rows = []
    for number, amount in enumerate(amounts):

        def release(table: Table, analyst: str, what: str, draw: int, amount: Fraction = amount) -> Any:
            return train(
                table,
                epsilon=amount,
                delta=delta,
                ledger=book,
                analyst=analyst if book is not None else None,
                label=f"{what}, epsilon {show(amount)}",
                random_state=None if seed is None else seed + draw,
                degree=DEGREE,
            )

        if amount == chosen and book is not None:
            before = book.show()
        fit = release(training, "modeller", "wage model", 2 * number)
        mean = release(mean_table, "baseline", "mean wage", 2 * number + 1)
        rows.append(Row(fit, mean, measure(fit, test), measure(mean, test), reference_error))

    _print_rows(console, rows, chosen)
    refusal = None if book is None else refuse(book, training, amounts[0], delta, train)
    if refusal is not None:
        console.print(
            f"[bold]5. One more?[/] Asked for a further fit at epsilon {show(amounts[0])}, the ledger says:"
        )
        console.print(f"   [yellow]{_escape(str(refusal['message']))}[/]")
        console.print("   Nothing was read for it, and nothing was spent.\n")

    own = next(row for row in rows if row.epsilon == chosen)
    console.print(f"[bold]6. The model at epsilon {show(chosen)}.[/]")
    console.print(summary(own.fit, table=schema))
    written = write_report(
        own.fit,
        report,
        table=schema,
        ledger=book,
        before=before,
        test=PublicTest(
            test,
            TEST_DECLARED_BY,
            TEST_REASON,
            baseline=own.mean,
            others=tuple(row.fit for row in rows if row is not own),
            reference=reference,
            reference_reason=REFERENCE_REASON,
        ),
        title="Privacy report: weekly wages, CPS 1988",
    )
    if book is not None:
        console.print(f"\nVerify the ledger: [bold]confide ledger show --verify --ledger {_escape(place)}[/]")
    console.print(f"Report for epsilon {show(chosen)}: [bold]{_escape(str(written))}[/]", soft_wrap=True)
    return {
        "rows": {"training": training.n_rows, "test": test.n_rows},
        "label": label.name,
        "delta": delta,
        "declared_by": schema.declared_by,
        "test_labels_declared_public_by": TEST_DECLARED_BY,
        "nonprivate_mse": reference_error.squared,
        "results": [
            {
                "epsilon": show(row.epsilon),
                "mse": row.error.squared,
                "private_mean_mse": row.mean_error.squared,
                "predicted_noise_mse": row.noise,
                "share_kept": None if row.kept is None else row.kept.value,
                "share_kept_standard_error": None if row.kept is None else row.kept.deviation,
                "share_expected": row.expected,
                "assumptions": list(row.fit.guarantee.assumptions),
            }
            for row in rows
        ],
        "ledger": None if book is None else _ledger_state(book, place),
        "refusal": refusal,
        "report": str(written),
        "report_epsilon": show(chosen),
    }


def held_out_rows(count: int) -> Any:
    """Return which rows are held out, bool [count]: a fixed rule on the row number and nothing else."""
    import numpy as np

    mixed = np.arange(count, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(2**32)
    return mixed < np.uint64(int(HELD_OUT * 2**32))


def open_ledger(
    url: str | None, report: Path, budget: tuple[Fraction, Fraction], table: Table
) -> tuple[Ledger, str]:
    """Open a fresh ledger for this run and return it with its handle; no file is ever removed.

    In the default store, and where a URL names no dataset, each run takes the next free name. That would
    defeat the purpose of a budget on a real table; here the table is in the public domain.

    Returns
    -------
    ledger, handle
    """
    from confide.ledger import Ledger

    counter: Any = None
    if url is None:
        # The demonstration leaves nothing outside the report's folder, so it keeps no rollback counter.
        counter = False
        report.parent.mkdir(parents=True, exist_ok=True)
        url = f"sqlite:///{report.parent / 'demo-ledger.db'}"
    base, mark, name = url.partition("#")
    if not mark:
        name = _free_name(base, counter)
    book = Ledger.open(
        base,
        dataset=name,
        epsilon=budget[0],
        delta=budget[1],
        adjacency="replace_label",
        unit="row",
        counter=counter,
    )
    return book, book.handle if url.startswith("postgresql") else f"{base}#{name}"


def _free_name(url: str, counter: Any) -> str:
    from confide.ledger import Ledger

    number = 1
    while True:
        name = f"cps1988-demo-{number}"
        try:
            Ledger.open(url, dataset=name, create=False, counter=counter)
        except LedgerError:
            # Absent; a store that is damaged says so when the ledger is created under this name.
            return name
        number += 1


def refuse(
    book: Ledger, table: Table, amount: Fraction, delta: str, train: Callable[..., Any]
) -> dict[str, str] | None:
    """Ask for one release too many and return the refusal: spent, asked, limit."""
    try:
        train(table, epsilon=amount, delta=delta, ledger=book, label="one too many")
    except BudgetError as error:
        return {
            "message": str(error),
            "spent": str(error.spent),
            "asked": str(error.asked),
            "limit": str(error.limit),
        }
    return None


def _ledger_state(book: Ledger, place: str) -> dict[str, Any]:
    state = book.show()
    kept = ("dataset", "budget", "spent", "remaining", "analysts", "entries", "head")
    charges = [{"id": c["id"], "label": c["label"], "charge": c["charge"]} for c in state["charges"]]
    return {"handle": place, **{key: state[key] for key in kept}, "charges": charges}


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _print_schema(console: Any, schema: Any) -> None:
    from rich.table import Table

    console.print(
        "[bold]1. What is public, by our assumption.[/] The wage table of the March 1988 Current "
        "Population Survey: 28,155 men. That the columns marked public are public is an "
        f"[bold]assumption[/], declared by {_escape(schema.declared_by)}. Bounds and categories come from "
        "the schema, never from the data."
    )
    grid = Table("column", "role", "declared bounds or categories", "unit")
    for column in schema.columns:
        role = "[bold]label, secret[/]" if column.role == "label" else column.role
        grid.add_row(_escape(column.name), role, _escape(column.domain), _escape(column.unit))
    console.print(grid)
    console.print(f"{_escape(schema.note)}\n", style="dim")


def _print_ledger(
    console: Any, book: Ledger | None, place: str, budget: tuple[Fraction, Fraction], count: int
) -> None:
    from confide.privacy import show

    if book is None:
        console.print(
            "[bold]3. No ledger.[/] [red]--seed makes the noise repeatable: these results are NOT "
            "private, and no ledger records them.[/]\n"
        )
        return
    console.print(
        f"[bold]3. A ledger,[/] durable and exact: [bold]{_escape(place)}[/]\n   budget epsilon = "
        f"{show(budget[0])}, delta = {show(budget[1])}, neighbours differ in one row's wage. It covers "
        f"{count} fits, and {count} releases of the mean wage that the fits are compared with, each at its "
        "own epsilon and charged like any other. Comparing all of them is what makes this so much; a real "
        "project would pick one epsilon. Each run of the demonstration opens a fresh account, which is "
        "fine for a public-domain table and would defeat the purpose on yours.\n"
    )


def _print_rows(console: Any, rows: list[Row], chosen: Fraction) -> None:
    from rich.table import Table

    from confide.privacy import show

    console.print(
        "[bold]4. What epsilon buys.[/] Mean squared error of the log weekly wage on the held-out rows. "
        "Every row is one run with its own noise; beside it stands what the noise was predicted to add, "
        "from public quantities, and the share of the non-private gain that this predicts."
    )
    grid = Table()
    heads = ("epsilon", "fit", "noise,\npredicted", "private\nmean", "not\nprivate*", "gain kept,\n%")
    for head in (*heads, "gain, %\npredicted"):
        grid.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        cells = (
            show(row.epsilon),
            f"{row.error.squared:.4f}",
            f"{row.noise:.5f}",
            f"{row.mean_error.squared:.4f}",
            f"{row.reference_error.squared:.4f}",
            row.kept.cell if row.kept else "-",
            f"{100 * row.expected:.1f}",
        )
        grid.add_row(*cells, style="bold" if row.epsilon == chosen else None)
    console.print(grid)
    console.print(
        "* not private, for comparison only: it needs the true labels. " + REFERENCE_REASON, style="dim"
    )
    console.print(
        "Gain kept: (mean - fit) / (mean - not private), ± its standard error over the held-out rows. It "
        "can pass 100 %: the private fit weighs rows differently, and the held-out rows are a sample.\n",
        style="dim",
    )
