"""What is recommended: a ranked table of settings with their expected accuracy, and ready arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from confide.errors import ParameterError
from confide.prediction.laws import Labels, small_delta
from confide.prediction.recommend_price import RELEASES, Expected, Price, expected, prices
from confide.prediction.recommend_rivals import Baseline, Rivals
from confide.prediction.rows import number
from confide.privacy import Adjacency, exact

if TYPE_CHECKING:
    from confide.prediction.estimator import CertifiedClassifier

#: Settings shown by print.
_SHOWN = 12
_WARNING = "From public or synthetic rows; computed from private ones, this page would be private."


@dataclass(frozen=True)
class Asked:
    """What was asked: budget, number of queries, and the private table's public facts.

    Attributes
    ----------
    epsilon, delta : amount
        Total.
    queries, classes : int
    adjacency : Adjacency
    releases : tuple of str
    rows : int
        Of the private table.
    max_rows_per_id : int
        m, the most rows of a person, whose changes the distances count; 1 where they count rows.
    """

    epsilon: Any
    delta: Any
    queries: int
    classes: int
    adjacency: Adjacency
    releases: tuple[str, ...]
    rows: int
    max_rows_per_id: int = 1

    def check(self) -> None:
        """Refuse amounts and releases that mean nothing.

        Raises
        ------
        ParameterError
        """
        if exact(self.epsilon, "epsilon") <= 0:
            raise ParameterError(f"The 'epsilon' parameter is {self.epsilon!r}.", "Pass a number > 0.")
        small_delta(self.delta)
        unknown = [name for name in self.releases if name not in RELEASES]
        if unknown or not self.releases:
            raise ParameterError(
                f"The 'releases' are {self.releases!r:.80}.",
                f"Pass some of {', '.join(map(repr, RELEASES))}.",
            )

    def strength(self, alpha: Any) -> dict[str, float]:
        """Return `alpha`, or the `ridge` that it means where the number of rows is secret."""
        if number(alpha, "alphas") <= 0:
            raise ParameterError(f"The 'alphas' name {alpha!r}.", "Pass numbers > 0.")
        if self.adjacency is Adjacency.ADD_REMOVE_ONE:
            return {"ridge": float(alpha) * self.rows}
        return {"alpha": float(alpha)}


@dataclass(frozen=True, eq=False)
class Trial:
    """One setting's answers to public queries, before any release.

    Attributes
    ----------
    settings : dict
        Arguments of `certify`, without the adjacency.
    correct : bool array [q]
    k : int64 array [q]
        Stability distances at the private table's size.
    """

    settings: dict[str, Any]
    correct: NDArray[np.bool_] = field(repr=False)
    k: Labels = field(repr=False)

    @property
    def name(self) -> str:
        """The setting in words."""
        held = self.settings
        if not isinstance(held["certificate"], str):
            return type(held["certificate"]).__name__
        rest = [f"{key}={value:g}" for key, value in held.items() if isinstance(value, int | float)]
        words = [held["certificate"], *([held["model"]] if "model" in held else [])]
        return " ".join([*words, *rest])


@dataclass(frozen=True)
class Option:
    """One row of the table.

    Attributes
    ----------
    certificate : str
        "erm", "votes", "interval" or the name of an object's class.
    release : str
    accuracy : float
        Expected share of right answers.
    error : float
        Its standard error, from the number of public rows alone.
    answered : float
        Share of queries that get a class; below 1 for "sparse_vector" alone.
    low, high : float
        Range of the accuracy: see `recommend`.
    model_accuracy : float
        Of the model without privacy.
    median_k : float
    price : Price
        What an answer, or an epoch, may spend.
    trial : Trial
    """

    certificate: str
    release: str
    accuracy: float
    error: float
    answered: float
    low: float
    high: float
    model_accuracy: float
    median_k: float
    price: Price
    trial: Trial = field(repr=False)

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of `certify`, without the adjacency."""
        return dict(self.trial.settings)


class Recommendation:
    """Settings by expected accuracy, the best first.

    Everything in it is a function of the rows that were declared public, and of nothing else.

    Attributes
    ----------
    asked : Asked
    trials : tuple of Trial
    classes : list
    feature_bounds : pair or None

    Examples
    --------
    ``print(advice)`` shows a table. With it a model is made and asked by

    ``model = confide.certify(table, **advice.certify_arguments)``,
    ``model.answer(rows, **advice.answer_arguments, ledger=...)``, or ``advice.certifier().fit(X, y)``.
    """

    def __init__(
        self,
        asked: Asked,
        trials: Sequence[Trial],
        classes: list[Any],
        feature_bounds: Any = None,
        rivals: Rivals | None = None,
    ) -> None:
        self.asked = asked
        self.trials = tuple(trials)
        self.classes = classes
        self.feature_bounds = feature_bounds
        self._rivals = rivals

    @cached_property
    def _priced(self) -> tuple[list[Price], list[str]]:
        asked = self.asked
        return prices(asked.releases, asked.epsilon, asked.delta, asked.queries, asked.classes)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Why releases are not in the table, or the private model not among the baselines."""
        return (*self._priced[1], *self._baselines[1])

    @cached_property
    def _baselines(self) -> tuple[tuple[Baseline, ...], tuple[str, ...]]:
        asked = self.asked
        if self._rivals is None:
            return (), ()
        return self._rivals.of(asked.epsilon, asked.delta, asked.adjacency, asked.rows)

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """The constant answer, and the private model where one was given; the best first.

        Of another budget (`at`) the private model is fitted again when this is read.
        """
        return self._baselines[0]

    @property
    def unbeaten(self) -> Baseline | None:
        """The best baseline that nothing in the table beats by a thousandth; None where the table wins."""
        ahead = [one for one in self.baselines if round(self.best.accuracy, 3) <= round(one.accuracy, 3)]
        return ahead[0] if ahead else None

    @cached_property
    def table(self) -> tuple[Option, ...]:
        """All settings with each release, the best first; of a sparse vector its best number of epochs.

        Accuracies that agree to three digits count as equal; then the simpler release stands first.
        """
        held, reasons = self._priced
        if not held:
            raise ParameterError(
                f"No release can be had: {' '.join(reasons)}", "Pass a delta, or another release."
            )
        options = [option for trial in reversed(self.trials) for option in self._options(trial, held)]
        return tuple(sorted(options, key=_rank))

    def _options(self, trial: Trial, held: Sequence[Price]) -> Iterator[Option]:
        for release in self.asked.releases:
            told = [(self._expected(price, trial), price) for price in held if price.release == release]
            if told:
                quality, price = max(told, key=lambda pair: pair[0].accuracy)
                yield _option(trial, price, quality)

    def _expected(self, price: Price, trial: Trial) -> Expected:
        asked = self.asked
        return expected(price, trial.correct, trial.k, queries=asked.queries, classes=asked.classes)

    @property
    def best(self) -> Option:
        """The setting and release with the highest expected accuracy."""
        return self.table[0]

    def best_of(self, release: str) -> Option:
        """Return the best setting for one release."""
        for option in self.table:
            if option.release == release:
                return option
        raise ParameterError(
            f"The release {release!r:.80} is not in the table.",
            "Pass one of `asked.releases`, or see left_out.",
        )

    @property
    def certify_arguments(self) -> dict[str, Any]:
        """Keyword arguments of `confide.certify` for the best."""
        return {**self.best.settings, "adjacency": self.asked.adjacency.value}

    @property
    def answer_arguments(self) -> dict[str, Any]:
        """Keyword arguments of `answer` and `preview` for the best: what each answer may spend."""
        return self.best.price.answer_arguments()

    def certifier(self, option: Option | None = None, **other: Any) -> CertifiedClassifier:
        """Return an estimator with the best settings, or with an option's.

        Parameters
        ----------
        option : Option, optional
        **other
            Further parameters of `CertifiedClassifier`, such as `ledger`.
        """
        from confide.prediction.estimator import CertifiedClassifier

        chosen = self.best if option is None else option
        named = isinstance(chosen.settings["certificate"], str)
        arguments: dict[str, Any] = {
            "classes": self.classes,
            "feature_bounds": self.feature_bounds if named else None,
            **chosen.settings,
            "adjacency": self.asked.adjacency.value,
            **({"max_rows_per_id": self.asked.max_rows_per_id} if self.asked.max_rows_per_id > 1 else {}),
            **other,
        }
        return CertifiedClassifier(**arguments)

    def at(self, epsilon: Any = None, delta: Any = None, queries: int | None = None) -> Recommendation:
        """Return the recommendation for another budget or number of queries, without fitting again."""
        asked = replace(
            self.asked,
            epsilon=self.asked.epsilon if epsilon is None else epsilon,
            delta=self.asked.delta if delta is None else delta,
            queries=self.asked.queries if queries is None else queries,
        )
        asked.check()
        return Recommendation(asked, self.trials, self.classes, self.feature_bounds, self._rivals)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain values."""
        return {
            "epsilon": str(self.asked.epsilon),
            "delta": str(self.asked.delta),
            "queries": self.asked.queries,
            "rows": self.asked.rows,
            "adjacency": self.asked.adjacency.value,
            "public_queries": int(self.trials[0].k.size),
            "left_out": list(self.left_out),
            "baselines": [asdict(baseline) for baseline in self.baselines],
            "table": [_plain(option) for option in self.table],
        }

    def __repr__(self) -> str:
        best = self.best
        return f"Recommendation({best.trial.name}, {best.release}, accuracy {best.accuracy:.3f})"

    def __str__(self) -> str:
        asked = self.asked
        head = (
            f"({asked.epsilon}, {asked.delta})-DP in total for {asked.queries:,} answers, "
            f"{asked.adjacency.value}, a private table of {asked.rows:,} rows, "
            f"{self.trials[0].k.size:,} public queries."
        )
        rows = [("release", "setting", "accuracy", "answered", "model", "median k", "an answer spends")]
        rows += [_cells(option) for option in self._shown()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        lines += [f"left out: {why}" for why in self.left_out]
        lines += [f"baseline: {one.name}: {one.accuracy:.3f} ± {one.error:.3f}" for one in self.baselines]
        if self.unbeaten is not None:
            lines.append(f"Nothing here beats the baseline: {self.unbeaten.name}.")
        return "\n".join([head, _WARNING, "", *lines])

    def _shown(self) -> list[Option]:
        """Return the best of each certificate for each release."""
        seen: dict[tuple[str, str], Option] = {}
        for option in self.table:
            seen.setdefault((option.certificate, option.release), option)
        return list(seen.values())[:_SHOWN]


def _rank(option: Option) -> tuple[float, int, float]:
    return -round(option.accuracy, 3), RELEASES.index(option.release), -option.accuracy


def _option(trial: Trial, price: Price, quality: Expected) -> Option:
    certificate = trial.settings["certificate"]
    return Option(
        certificate if isinstance(certificate, str) else type(certificate).__name__,
        price.release,
        quality.accuracy,
        quality.error,
        quality.answered,
        quality.low,
        quality.high,
        float(trial.correct.mean()),
        float(np.median(trial.k)),
        price,
        trial,
    )


def _cells(option: Option) -> tuple[str, ...]:
    price = option.price
    spends = f"epsilon {price.epsilon:g}" + (f", delta {price.delta:g}" if price.delta else "")
    if option.release == "sparse_vector":
        spends = f"{spends} in each of {price.epochs:,} epochs"
    spread = f"± {option.error:.3f}"
    if option.release == "sparse_vector":
        spread = f"({option.low:.3f} to {option.high:.3f})"
    return (
        option.release,
        option.trial.name,
        f"{option.accuracy:.3f} {spread}",
        f"{option.answered:.0%}",
        f"{option.model_accuracy:.3f}",
        f"{option.median_k:,.0f}",
        spends,
    )


def _plain(option: Option) -> dict[str, Any]:
    settings: Mapping[str, Any] = option.settings
    if not isinstance(settings["certificate"], str):
        settings = {**settings, "certificate": option.certificate}
    return {
        "release": option.release,
        "settings": dict(settings),
        "accuracy": option.accuracy,
        "error": option.error,
        "answered": option.answered,
        "low": option.low,
        "high": option.high,
        "model_accuracy": option.model_accuracy,
        "median_k": option.median_k,
        "answer": option.price.answer_arguments(),
    }
