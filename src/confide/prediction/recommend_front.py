"""Which certificate, regularisation and release: chosen on public or synthetic rows, at no cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from confide.errors import DataError, ParameterError, SchemaError
from confide.prediction.certificate import Certificate, Labels, matrix
from confide.prediction.erm import StronglyConvexERM
from confide.prediction.ids import check_ids, names
from confide.prediction.laws import whole
from confide.prediction.model import public_classes
from confide.prediction.named import MODELS, Recipe
from confide.prediction.recommend_price import RELEASES
from confide.prediction.recommend_rivals import Rivals
from confide.prediction.recommendation import Asked, Recommendation, Trial
from confide.prediction.rows import Floats, number, unit_rows
from confide.privacy import Adjacency
from confide.schema.loose import has

#: Ridges of the mean objective and neighbours that are tried.
ALPHAS = (1e-5, 3e-5, 1e-4, 3e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
NEIGHBOURS = (15, 51, 151, 501, 1501, 5001, 15_001, 50_001)
#: Constant columns of the intercept, as shares of the feature norm; None: the default.
CONSTANTS = (None, 0.5)
#: Larger tables are tried at this size, and distances scaled by how much larger they are.
MOST_ROWS = 10_000
_QUIET = 2.0


def recommend(
    X: Any,
    y: Any = None,
    *,
    epsilon: Any,
    delta: Any = 0,
    queries: int,
    classes: Any = None,
    feature_bounds: Any = None,
    rows: int | None = None,
    adjacency: Adjacency | str = "replace_one",
    certificates: Sequence[Any] = ("erm", "votes"),
    releases: Sequence[str] = RELEASES,
    models: Sequence[str] | None = None,
    alphas: Sequence[float] | None = None,
    feature_norms: Sequence[float | None] = (None,),
    constants: Sequence[float | None] = CONSTANTS,
    neighbours: Sequence[int] = NEIGHBOURS,
    folds: int = 3,
    seed: int = 0,
    public: bool = False,
    ids: Any = None,
    max_rows_per_id: int | None = None,
    private: Any = None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> Recommendation:
    """Recommend certificate, regularisation and release from PUBLIC or SYNTHETIC rows.

    **Never pass rows of the private table.** Nothing here is private: the result is a function of the rows,
    and nothing is charged. A published sample, another year's or another place's table that may be shown, or
    rows simulated from published means will do: what matters is how far they lie from the boundary between
    the classes.

    Parameters
    ----------
    X : array-like of shape (n, p), or Table
        Public rows. Of a `Table` (the schema of the private one, public rows) the features, classes and
        bounds are read, and `y`, `classes` and `feature_bounds` stay out.
    y : array-like of shape (n,)
        Their classes.
    epsilon, delta : amount
        Total of all answers.
    queries : int
        How many queries will be answered.
    classes : sequence
        All classes there may be.
    feature_bounds : pair of scalars or of arrays of shape (p,)
        As the private model will declare them.
    rows : int, optional
        Rows of the private table where their number is public, or a public guess; default n. Of it depends
        how stable answers are, as much as on epsilon.
    adjacency : Adjacency or str
    certificates : sequence of {"erm", "votes", "interval", "ball"} or Certificate
        Objects are tried as they are, at `rows` rows.
    releases : sequence of str
    models : sequence of str, optional
        Of "erm"; default logistic and Huber hinge for two classes, softmax for more.
    alphas : sequence of float, optional
        Of "erm"; default 1, 3, 10 ... times a power of ten from 1 / `rows` (at least 1e-5)
        to 3. Under ADD_REMOVE_ONE they become ``ridge = alpha * rows``.
    feature_norms : sequence of float or None
        Of "erm"; see `confide.prediction.rows.unit_rows`.
    constants : sequence of float or None
        Of "erm": the constant that makes the intercept, as shares of the feature norm; None: a fifth of it.
        A half does better where classes are unequal, and hardly worse where they are not.
    neighbours : sequence of int
        Of "votes"; those below a quarter of `rows`.
    folds : int
        Each fold's rows are the queries of models of the other folds' rows.
    seed : int
        Of folds and resampling.
    public : bool
        Required for a `Table`, which usually is private: True says that this one may be shown.
    ids : sequence [n], optional
        Whose row each public one is, with `max_rows_per_id`: folds keep persons together. Read as in
        `certify` (`confide.prediction.ids`); of one type, and none missing. Of a `Table` both are its own.
    max_rows_per_id : int, optional
        m: the private table's unit is a person of at most so many rows. Distances of m or more rows count
        persons, floor(k / m); an object that counts persons itself keeps its own.
    private : estimator, optional
        A baseline to beat, such as ``confide.PrivateClassifier()``: one private model at the whole total,
        which answers any number of queries. It is cloned, given the total, the adjacency, and the classes and
        bounds where it has none, and fitted on the public rows at the private table's size (at most 50,000);
        no ledger is charged.
    n_jobs : int, optional
        joblib's, over settings and folds.
    progress : bool
        A bar on work past two seconds.

    Returns
    -------
    Recommendation

    Raises
    ------
    ParameterError, UnsupportedError, SchemaError, DataError

    Notes
    -----
    Each setting is fitted on the rows outside a fold, brought to the size of the private table: each row as
    often as any other, within one, or a sample without replacement where there are more. That is a stand-in:
    repeated rows carry no new information, so accuracies are those of a model of the public rows, while
    distances are those of a table of `rows` rows. Past 10,000 rows models are fitted at 10,000 with the same
    alpha (for "votes" a proportional m), and distances scaled by the quotient: at one alpha the margin stays
    and a change moves the weights by 2 / (alpha n).

    Accuracies are expectations over the noise: no answer is drawn. The sparse vector is simulated for queries
    in random order. An epoch may end with a query rarer than the n public ones show: the share of such
    queries is drawn from its posterior under a uniform prior, so that j queries in a row hold none of them
    with probability (n + 1) / (n + 1 + j). `low` and `high` of an option are the accuracies with the 95 %
    bound of that share (3 / n) and without such queries. A query that is left open counts as a guess. The
    best of many settings looks better than it is by about its standard error.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 3))  # synthetic
    >>> y = np.where(X[:, 0] + 0.3 * rng.normal(size=600) > 0, "yes", "no")
    >>> advice = recommend(X, y, epsilon=10, delta=1e-5, queries=100, classes=["no", "yes"],
    ...                    feature_bounds=(-2, 2), rows=2000, certificates=["erm"])
    >>> advice.best.release, round(advice.best.price.epsilon, 3)
    ('response', 0.204)
    """
    for name, value in (("releases", releases), ("certificates", certificates), ("models", models)):
        if isinstance(value, str):  # a sequence, but of letters
            raise ParameterError(f"The '{name}' parameter is the text {value!r:.80}.", "Pass a list.")
    if has(X, "schema") and has(X, "chunks"):  # a Table: frames of polars and Arrow have a schema too
        if ids is not None or max_rows_per_id is not None:
            raise ParameterError("A Table has its ids itself.", "Leave ids and max_rows_per_id out.")
        ids, max_rows_per_id = _persons_of(X)
        X, y, classes, feature_bounds, norm = _of_table(X, y, classes, feature_bounds, public)
        feature_norms = [norm if value is None else value for value in feature_norms]
    known = public_classes(classes)
    relation = Adjacency.parse(adjacency)
    cells, codes = _public_rows(X, y, known)
    asked = Asked(
        epsilon, delta, whole(queries, "queries", 1), len(known), relation, tuple(releases),
        len(cells) if rows is None else whole(rows, "rows", 1),
        1 if max_rows_per_id is None else whole(max_rows_per_id, "max_rows_per_id", 1),
    )  # fmt: skip
    asked.check()
    tries = _Tries(
        cells, codes, asked, feature_bounds, whole(folds, "folds", 2), whole(seed, "seed"),
        _persons(ids, max_rows_per_id, len(cells)),
    )  # fmt: skip
    if alphas is None:
        alphas = [alpha for alpha in ALPHAS if alpha * asked.rows >= 1] or ALPHAS[-1:]
    shapes = list(_shapes(feature_norms, constants, feature_bounds, cells.shape[1]))
    settings = list(_settings(certificates, asked, _models(models, len(known)), alphas, shapes, neighbours))
    halves = [(train, held) for train, held, _ in tries.parts()]
    rivals = Rivals(cells, codes, known.tolist(), feature_bounds, halves, private)
    trials = tries.all(settings, n_jobs, progress)
    return Recommendation(asked, trials, known.tolist(), feature_bounds, rivals)


def _of_table(table: Any, y: Any, classes: Any, feature_bounds: Any, public: bool) -> tuple[Any, ...]:
    """Return rows, labels, classes, bounds and feature norm of a public table, as in `certify`."""
    from confide.prediction.front import BOX, row_norm
    from confide.prediction.model import encoded

    schema = table.schema
    if public is not True:
        raise ParameterError(
            "X is a Table, and nothing that is computed from it here is private.",
            "Pass public=True if all its rows may be shown to anybody; never the private table.",
        )
    if not (y is None and classes is None and feature_bounds is None):
        raise ParameterError(
            "A Table has its labels, classes and bounds itself.", "Leave y, classes, feature_bounds out."
        )
    if schema.label is None or schema.label.numeric:
        raise SchemaError("The schema has no label of categories.", "Declare the classes of the label.")
    classes = tuple(schema.label.categories)
    codes = np.concatenate([np.zeros(0), *(np.asarray(part.label) for part in table.chunks())])
    labels = np.asarray(classes)[np.where(codes < len(classes), codes, 0).astype(np.int64)]
    return encoded(table, schema), labels, classes, BOX, row_norm(schema, None)


def _persons_of(table: Any) -> tuple[Any, int | None]:
    """Return whose row each public one is, and the most rows of a person, of a schema with an id column."""
    if table.schema.id is None:
        return None, None
    parts = [np.zeros(0, dtype=np.int64), *(part.ids for part in table.chunks())]
    return np.concatenate(parts), table.schema.max_rows_per_id


#: What the first byte of a name says (`confide.prediction.ids`).
_KINDS = {b"i": "numbers", b"s": "text", b"b": "bytes", b"o": "dates, times or UUIDs", b"t": "tuples"}


def _persons(ids: Any, most: int | None, rows: int) -> Labels | None:
    """Return persons as numbers [n], or None where each row is one; ids are read as in `certify`.

    Rows are public here, so that an id that names nobody may be told of; `certify` leaves its row out.
    """
    if ids is None:
        return None
    if most is None:
        raise ParameterError("The 'ids' have no 'max_rows_per_id'.", "Pass both, or neither.")
    check_ids(ids)
    if len(ids) != rows:
        raise DataError(f"There are {len(ids)} ids for {rows} rows.", "Pass one id for each row.")
    held = names(ids)
    absent = held.count(None)
    if absent:
        raise DataError(
            f"{absent} of the ids name nobody: they are missing, or no number, text, date or tuple of these.",
            "Leave these rows out, as the private model will, or give them ids.",
        )
    kinds = sorted({_KINDS[name[:1]] for name in held if name is not None})
    if len(kinds) > 1:
        raise DataError(
            f"The ids are of mixed types: {', '.join(kinds)}. 1 and '1' would be two persons.",
            "Pass ids of one type, such as [str(one) for one in ids].",
        )
    numbers = {name: place for place, name in enumerate(dict.fromkeys(held))}
    return np.array([numbers[name] for name in held], dtype=np.int64)


def _public_rows(X: Any, y: Any, known: Any) -> tuple[Floats, Labels]:
    cells = matrix(X, "X")
    given = np.asarray(y)
    if given.shape != (len(cells),):
        raise DataError(
            f"The labels have shape {given.shape} for {len(cells)} rows.", "Pass one label for each row."
        )
    place = {label: code for code, label in enumerate(known.tolist())}
    codes = np.array([place.get(label, -1) for label in given.tolist()], dtype=np.int64)
    if (codes < 0).any():
        raise DataError(
            f"{int((codes < 0).sum())} public rows have a label that is no class.", "Declare all classes."
        )
    return cells, codes


def _models(models: Sequence[str] | None, classes: int) -> tuple[str, ...]:
    if models is not None:
        return tuple(models)
    return ("logistic", "huber_hinge") if classes == 2 else ("softmax",)


def _shapes(
    norms: Sequence[float | None], constants: Sequence[float | None], feature_bounds: Any, columns: int
) -> Iterator[dict[str, float]]:
    """Yield the arguments of `certify` for the map of rows to the unit ball."""
    for norm in norms:
        for share in constants:
            shape = {} if norm is None else {"feature_norm": norm}
            if share is not None and feature_bounds is not None:  # without bounds the settings are refused
                whole_norm = unit_rows(feature_bounds, columns, feature_norm=norm).norm
                shape["constant"] = float(f"{number(share, 'constants') * whole_norm:.4g}")
            yield shape


def _settings(
    certificates: Iterable[Any],
    asked: Asked,
    models: Sequence[str],
    alphas: Iterable[float],
    shapes: Sequence[Mapping[str, float]],
    neighbours: Iterable[int],
) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `certify` for each setting."""
    binary = asked.classes == 2
    for certificate in certificates:
        if certificate == "erm":
            for model in models:
                for alpha in alphas:
                    for shape in shapes:
                        yield {"certificate": "erm", "model": model, **asked.strength(alpha), **shape}
        elif certificate == "votes":
            few = [m for m in neighbours if 4 * m <= asked.rows]
            yield from ({"certificate": "votes", "neighbours": m} for m in few or [1])
        elif certificate in ("interval", "ball"):
            bound = {"max_rows": asked.rows} if asked.adjacency is Adjacency.ADD_REMOVE_ONE else {}
            yield {"certificate": certificate, "model": "logistic" if binary else "softmax", **bound}
        elif isinstance(certificate, Certificate):
            yield {"certificate": certificate}
        else:
            raise ParameterError(
                f"The certificate {certificate!r:.80} is not known.",
                f"Pass some of {', '.join(map(repr, MODELS))}, or objects.",
            )


@dataclass(frozen=True, eq=False)
class _Tries:
    """Public rows, in folds, and the size of the private table."""

    X: Floats
    y: Labels
    asked: Asked
    bounds: Any
    folds: int
    seed: int
    persons: Labels | None = None

    def all(
        self, settings: Sequence[Mapping[str, Any]], n_jobs: int | None, progress: bool
    ) -> tuple[Trial, ...]:
        """Fit each setting on each fold's complement."""
        from joblib import Parallel, delayed

        if not settings:
            raise ParameterError("No setting is left to try.", "Pass certificates, models and alphas.")
        for held in settings:
            self.recipe(held, self.asked.rows).check(self.asked.classes, self.bounds)
        parts = self.parts()
        jobs = [(place, fold) for place in range(len(settings)) for fold in range(self.folds)]
        told: list[Any] = []
        with _bar(progress, len(jobs)) as tick:
            pool = Parallel(n_jobs=n_jobs, return_as="generator")
            for found in pool(delayed(self.one)(settings[i], *parts[fold]) for i, fold in jobs):  # pyright: ignore[reportGeneralTypeIssues]
                told.append(found)
                tick()
        trials = []
        for place, held in enumerate(settings):
            mine = told[place * self.folds : (place + 1) * self.folds]
            correct, k = (np.concatenate([part[i] for part in mine]) for i in (0, 1))
            trials.append(Trial(dict(held), correct, k))
        return tuple(trials)

    def parts(self) -> list[tuple[Labels, Labels, int]]:
        """Return training rows (repeated or sampled), queries and the size for each fold."""
        rng = np.random.default_rng(self.seed)
        fold = self._folds(rng)
        used = min(self.asked.rows, MOST_ROWS)
        out = []
        for number_ in range(self.folds):
            mixed = rng.permutation(np.flatnonzero(fold != number_))
            out.append((np.resize(mixed, used), np.flatnonzero(fold == number_), used))
        return out

    def _folds(self, rng: np.random.Generator) -> Labels:
        """Return the fold of each row: all of a person in one, classes spread evenly where rows are units."""
        units = len(self.y) if self.persons is None else int(self.persons.max(initial=-1)) + 1
        if units < 2 * self.folds:
            what = "rows" if self.persons is None else "persons"
            raise DataError(
                f"There are {units} public {what} for {self.folds} folds.",
                f"Pass more {what}, or fewer folds.",
            )
        order = rng.permutation(units)
        if self.persons is None:
            order = order[np.argsort(self.y[order], kind="stable")]
        fold = np.empty(units, dtype=np.int64)
        fold[order] = np.arange(units) % self.folds
        return fold if self.persons is None else fold[self.persons]

    def recipe(self, settings: Mapping[str, Any], used: int) -> Recipe:
        """Return a setting for a table of `used` rows that stands for one of `asked.rows`."""
        share = used / self.asked.rows
        held = {"adjacency": self.asked.adjacency, **settings}
        if "ridge" in held:
            held["ridge"] = number(held["ridge"], "ridge") * share
        if "neighbours" in held:
            held["neighbours"] = max(1, round(whole(held["neighbours"], "neighbours", 1) * share))
        if "max_rows" in held:
            held["max_rows"] = used
        return Recipe(**held)

    def one(self, settings: Mapping[str, Any], train: Labels, asked: Labels, used: int) -> tuple[Any, Labels]:
        """Return whether classes are right, and distances, of one fold's queries."""
        rows, scale = train, self.asked.rows / used
        if not isinstance(settings["certificate"], str):
            rows, scale = np.resize(train, self.asked.rows), 1.0
        built = self.recipe(settings, used).build(self.asked.classes, self.bounds, self.X.shape[1], len(rows))
        if isinstance(built, StronglyConvexERM):  # curvature for the distances that it would serve
            built = replace(built, curvature_levels=int(built.curvature_levels / scale))
        labels, k = built.fit(self.X[rows], self.y[rows]).stability(self.X[asked])
        distances = np.floor((k + 0.5) * scale).astype(np.int64)
        if getattr(built, "unit", "row") == "row":
            distances //= self.asked.max_rows_per_id
        return labels == self.y[asked], distances


@contextmanager
def _bar(progress: bool, total: int) -> Iterator[Any]:
    """Yield a function that moves a bar, shown once two seconds have passed."""
    import time

    if not progress:
        yield lambda: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar, start = Progress(*columns, transient=True), time.perf_counter()
    task = bar.add_task("settings", total=total)

    def tick() -> None:
        bar.advance(task, 1)
        if time.perf_counter() - start > _QUIET:
            bar.start()

    try:
        yield tick
    finally:
        bar.stop()
