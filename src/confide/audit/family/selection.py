"""Members of the families of the room: selection.

All are tried on tables where a record moves a law by nearly all that it may (`far`), so that an exponent that
is wrong on one branch alone (a relation, a size, a kind of input) shows in the laws of the first pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from confide.audit.family.variant import Families, Variant
from confide.audit.neighbours import Rows, pairs, table
from confide.audit.registry import Floats, Pair, Run, random_state
from confide.mechanisms import RandomStream
from confide.selection import SubsetProblem, SubsetSelector, gap_condition, select
from confide.selection.baselines import LassoVotes, baseline
from confide.selection.losses import Loss, huber, quantile

#: Rows that fit one half of the columns and the other.
_FEW, _MANY = 60, 120
#: The same where a row has a small part of epsilon.
_MORE = {"few": 300, "many": 600}
_CLASSES = ("hinge", "logistic")
_RELATIONS = ("replace_one", "replace_label", "replace_private_part", "add_remove_one")
#: Cells that count as 1 and as -1, one of them beyond: if both were, each would hide the other.
_ABOVE, _BELOW = (1e6, -1.0), (1.0, -1e308)
#: Rows of one person in a table, and how many of them count.
_OWNED, _CAP = 10, 3


def far(
    relation: str,
    size: int = 1,
    *,
    cell: float = 1.0,
    end: float = 1.0,
    ends: tuple[float, float] = (1.0, -1.0),
    few: int = _FEW,
    many: int = _MANY,
    count: int = 1,
) -> Pair:
    """Return neighbours of 2 `size` + 1 columns whose scores move apart by all that M allows.

    The first half of the columns asks for coefficients at one end of the ball, the second at the other end,
    and fits far more rows: the first is rarely drawn. The row that differs, in the last place, says that the
    one is wrong by as much as it can be and the other right, and on the other table the reverse. The last
    column is 0, and missing in that row.

    Parameters
    ----------
    relation : str
    size : int
    cell : float
        Of the rows that are kept.
    end : float
        The label that moves the loss most, where it stays.
    ends : pair
        Cells of the row that differs, or its labels where these differ.
    few, many : int
    count : int
        Of rows that differ.
    """
    kept = np.zeros((2, 2 * size + 1))
    kept[0, :size] = kept[1, size:-1] = cell
    X = np.repeat(kept, [few, many], axis=0)
    base = Rows(X, np.repeat([-1.0, 1.0], [few, many]))

    def joined(cells: float, label: float) -> Rows:
        row = np.append(np.full(2 * size, cells), np.nan if abs(cells) > 1 else 0.0)
        return Rows(np.vstack([X, np.tile(row, (count, 1))]), np.append(base.y, np.full(count, label)))

    high, low = ends
    if relation == "add_remove_one":
        return Pair("apart, added", base, joined(high, end))
    if relation == "replace_label":
        return Pair("apart, label", joined(1.0, high), joined(1.0, low))
    return Pair("apart, cells", joined(high, end), joined(low, end))


def _labels(loss: Any) -> bool:
    return loss in _CLASSES


def _cell(loss: Any, radius: float = 1.0) -> float:
    # A margin of 1 takes the largest coefficient, and so does an answer of 1.
    return 0.25 if loss == "hinge" else min(1.0, 1 / radius)


def _end(loss: Any) -> float:
    return -1.0 if isinstance(loss, Loss) and loss.name == "quantile" and loss.shape < 0.5 else 1.0


def _as_it_is(rows: Rows) -> tuple[Any, Any]:
    return rows.X, rows.y


def selected(how: Callable[[Rows], tuple[Any, Any]] = _as_it_is, **options: Any) -> Run:
    """Return a run of the estimator on a table as `how` makes it: its input, without the outcome's law."""
    kind: Any = {"classes": [-1.0, 1.0]} if _labels(options.get("loss")) else {"target_bounds": (-1, 1)}
    given = {"size": 1, "epsilon": 1, "ridge": 0.0, "feature_bounds": (-1, 1), **kind, **options}

    def run(rows: Rows, stream: RandomStream) -> Floats:
        fitted = SubsetSelector(**given, random_state=random_state(stream)).fit(*how(rows))
        return np.array(fitted.get_support(indices=True), dtype=np.float64)

    return run


def _one(pair: Callable[[], Pair]) -> Callable[[], list[Pair]]:
    return lambda: [pair()]


def _both(relation: str, **how: Any) -> Callable[[], list[Pair]]:
    """Return neighbours with cells, or labels, above the bounds and below them."""
    return lambda: [far(relation, ends=ends, **how) for ends in (_ABOVE, _BELOW)]


def _made(relation: str, size: int = 1, epsilon: float = 1, **options: Any) -> Variant:
    """Return a member of the estimator with its own neighbours."""
    loss = options.get("loss", "squared")
    known = f"{loss.name}({loss.shape:g})" if isinstance(loss, Loss) else loss
    shown = {"size": size, "epsilon": epsilon, **options, "loss": known}
    text = ", ".join(f"{name} {value}" for name, value in shown.items())
    rows: Any = _MORE if epsilon < 1 or size > 1 else {}
    pair = partial(far, relation, size, cell=_cell(loss, options.get("radius", 1.0)), end=_end(loss), **rows)
    run = selected(adjacency=relation, size=size, epsilon=epsilon, **options)
    return Variant(f"{relation}, {text}", run, _one(pair), relation, epsilon)


def _laws() -> Iterator[Variant]:
    """Yield mechanisms under all relations, sizes, amounts and losses of other shapes."""
    for relation in _RELATIONS:
        if relation in ("replace_label", "replace_private_part"):
            for mechanism in ("exponential", "permute_and_flip", "top_r"):
                yield _made(relation, mechanism=mechanism)
        yield _made(relation, size=3, mechanism="exponential")
        yield _made(relation, size=2, mechanism="top_r", top=7)
        for loss in (quantile(0.2), quantile(0.9), huber(0.1)):
            yield _made(relation, loss=loss)
    for mechanism in ("exponential", "permute_and_flip", "top_r"):
        for epsilon in (0.1, 8):
            yield _made("replace_one", epsilon=epsilon, mechanism=mechanism)
        yield _made("replace_one", size=2, mechanism=mechanism)
    for top in (2, 3):
        yield _made("replace_one", mechanism="top_r", top=top)
    for relation in ("replace_one", "add_remove_one"):
        for loss in ("squared", "huber", huber(0.1), "quantile", quantile(0.2), quantile(0.9)):
            yield _made(relation, loss=loss, radius=0.3)
        yield _made(relation, radius=3.0)
        yield _made(relation, loss="huber", radius=3.0)
    for loss in _CLASSES:
        for relation in ("replace_label", "replace_private_part"):
            yield _made(relation, loss=loss)
        yield _made("replace_one", loss=loss, radius=0.3)
        yield _made("replace_one", loss=loss, epsilon=8)


def _strided(rows: Rows) -> tuple[Any, Any]:
    wide, long = np.full((2 * rows.y.size, 2 * rows.X.shape[1]), 5.0), np.full(2 * rows.y.size, 5.0)
    wide[::2, ::2], long[::2] = rows.X, rows.y
    return wide[::2, ::2], long[::2]


def _floats(rows: Rows) -> tuple[Any, Any]:
    return np.clip(rows.X, -3e38, 3e38).astype(np.float32), rows.y


def _integers(rows: Rows) -> tuple[Any, Any]:
    return np.clip(np.nan_to_num(rows.X, nan=0.0), -1e9, 1e9).astype(np.int64), rows.y.astype(np.int64)


def _sparse(rows: Rows) -> tuple[Any, Any]:
    from scipy.sparse import csr_matrix

    return csr_matrix(rows.X), rows.y


def _twice(rows: Rows) -> tuple[Any, Any]:
    """Return a matrix whose entries name each cell twice: halves, which add up."""
    from scipy.sparse import coo_matrix

    i, j = np.nonzero(rows.X)
    cells = np.tile(rows.X[i, j] / 2, 2)
    return coo_matrix((cells, (np.tile(i, 2), np.tile(j, 2))), shape=rows.X.shape).tocsr(), rows.y


_LOWER, _UPPER = np.array([-1.0, 2.0, -4.0]), np.array([1.0, 8.0, 0.5])


def _stretched(rows: Rows) -> tuple[Any, Any]:
    """Return the table in units in which the bounds differ from column to column, and the label's too."""
    half = (_UPPER - _LOWER) / 2
    with np.errstate(over="ignore"):
        return (_LOWER + _UPPER) / 2 + half * rows.X, 1 + rows.y


def _framed(rows: Rows) -> tuple[Any, Any]:
    import pandas as pd

    X, y = _stretched(rows)
    return pd.DataFrame(X, columns=["a", "b", "c"]), y


#: Kind of input -> (how it is made, options).
_KINDS: dict[str, tuple[Callable[[Rows], tuple[Any, Any]], dict[str, Any]]] = {
    "rows in order": (_as_it_is, {}),
    "columns in order": (lambda rows: (np.asfortranarray(rows.X), rows.y), {}),
    "32 bits": (_floats, {}),
    "32 bits, columns in order": (lambda rows: (np.asfortranarray(_floats(rows)[0]), rows.y), {}),
    "integers": (_integers, {}),
    "sparse": (_sparse, {}),
    "sparse, cells named twice": (_twice, {}),
    "strided": (_strided, {}),
    "objects": (lambda rows: (rows.X.astype(object), rows.y), {}),
    "bounds of columns": (_stretched, {"feature_bounds": (_LOWER, _UPPER), "target_bounds": (0, 2)}),
    "bounds by name": (
        _framed,
        {
            "feature_bounds": {name: (_LOWER[i], _UPPER[i]) for i, name in enumerate("abc")},
            "target_bounds": (0, 2),
        },
    ),
}


def _inputs() -> Iterator[Variant]:
    """Yield kinds of input with cells and labels beyond the bounds, and many rows, whose last differs."""
    for name, (how, options) in _KINDS.items():
        yield Variant(name, selected(how, **options), _both("replace_one"))
    for name in ("rows in order", "columns in order", "sparse", "bounds of columns"):
        how, options = _KINDS[name]
        pair = partial(far, "replace_one", ends=_BELOW, few=400, many=800)
        yield Variant(f"{name}, 1,201 rows", selected(how, **options), _one(pair))
    for name in ("rows in order", "bounds of columns"):
        how, options = _KINDS[name]
        run = selected(how, adjacency="replace_label", **options)
        yield Variant(f"{name}, labels beyond", run, _both("replace_label"), "replace_label")
    for loss in ("huber", "logistic", "hinge", "quantile"):
        yield Variant(f"{loss}, cells beyond", selected(loss=loss), _both("replace_one", cell=_cell(loss)))
    # A row in which one cell is larger than any number counts as one at the end of the bounds.
    pair = partial(far, "replace_one", ends=(np.inf, -1.0))
    yield Variant("infinite cells", selected(), _one(pair))


def framed(rows: Rows, cap: int | None, *, classes: bool = False) -> Any:
    """Return rows within +-1 as a table, in columns with bounds of their own.

    With a cap, the first `_FEW` + `_MANY` rows are of one person each, and all others of one more.
    """
    import pandas as pd

    from confide.schema import Table

    names = [f"x{j}" for j in range(rows.X.shape[1])]
    with np.errstate(over="ignore"):  # cells near the end of doubles: not the library's doing
        frame = pd.DataFrame(5 + 2 * rows.X, columns=names)
    frame["y"] = np.where(rows.y > 0, "yes", "no") if classes else rows.y
    label = {"categories": ["no", "yes"]} if classes else {"lower": -1, "upper": 1}
    columns: dict[str, Any] = {name: {"role": "private", "lower": 3, "upper": 7} for name in names}
    columns["y"] = {"role": "label", **label}
    whole = {} if cap is None else {"table": {"max_rows_per_id": cap}}
    if cap is not None:
        frame["person"] = [f"p{min(i, _FEW + _MANY)}" for i in range(len(frame))]
        columns["person"] = {"role": "id"}
    return Table.from_frame(frame, {"columns": columns, **whole})


def _door(relation: str, cap: int | None, *, classes: bool = False, **options: Any) -> Run:
    def run(rows: Rows, stream: RandomStream) -> Floats:
        held = framed(rows, cap, classes=classes)
        told = select(
            held,
            size=1,
            epsilon=1,
            ridge=0.0,
            adjacency=relation,
            random_state=random_state(stream),
            **options,
        )
        return np.array(told.indices, dtype=np.float64)

    return run


def _doors() -> Iterator[Variant]:
    """Yield the front door on tables, with persons of more rows than count, and declared persons."""
    for relation in ("replace_one", "add_remove_one"):
        person = partial(far, relation, count=_OWNED)
        yield Variant(f"select, {relation}", _door(relation, None), _one(partial(far, relation)), relation)
        yield Variant(f"select, {relation}, ids", _door(relation, _CAP), _one(person), relation)
    for mechanism in ("permute_and_flip", "top_r"):
        run, person = (
            _door("replace_one", _CAP, mechanism=mechanism),
            partial(far, "replace_one", count=_OWNED),
        )
        yield Variant(f"select, {mechanism}, ids", run, _one(person))
    for loss in (None, "logistic"):
        pair = partial(far, "replace_one", count=_OWNED)
        run = _door("replace_one", _CAP, classes=True, loss=loss)
        yield Variant(f"select, categories, {loss}, ids", run, _one(pair))
    beyond = _both("replace_one", count=_OWNED)
    yield Variant("select, cells beyond, ids", _door("replace_one", _CAP), beyond)
    for relation in _RELATIONS:
        for mechanism in ("permute_and_flip", "top_r"):
            run = selected(adjacency=relation, mechanism=mechanism, max_rows_per_person=_OWNED)
            person = partial(far, relation, count=_OWNED, **_MORE)
            yield Variant(f"{_OWNED} rows a person, {relation}, {mechanism}", run, _one(person), relation)


def _leading(cell: float, count: int) -> Pair:
    """Return neighbours whose gaps are nearly W apart: as in `confide.audit.promises.selection`."""
    X = np.vstack([np.ones((40, 2)), np.tile([1.0, -1.0], (3 * count, 1))]) * cell

    def joined(row: tuple[float, float]) -> Rows:
        return Rows(np.vstack([np.tile(row, (count, 1)), X]), np.ones(X.shape[0] + count))

    return Pair("the gap moves most", joined((1.0, -1.0)), joined((-1.0, 1.0)))


def _gap(loss: Any, count: int = 1, epsilon: float = 1) -> Variant:
    bound = {} if _labels(loss) else {"target_bound": 1.0}

    def run(rows: Rows, stream: RandomStream) -> Floats:
        problem = SubsetProblem(rows.X, rows.y, 1, loss, ridge=0.0, feature_bound=1.0, **bound)
        found = gap_condition(
            problem, epsilon=epsilon, rows_per_unit=count, random_state=random_state(stream)
        )
        return np.array([found.gap, found.holds])

    name = f"{getattr(loss, 'shape', '')} {getattr(loss, 'name', loss)}, {count} a person, epsilon {epsilon}"
    return Variant(name.strip(), run, _one(partial(_leading, _cell(loss), count)), epsilon=epsilon)


def _gaps() -> Iterator[Variant]:
    for loss in ("huber", "quantile", *_CLASSES, quantile(0.9), huber(0.1)):
        yield _gap(loss)
    yield _gap("logistic", _CAP)
    yield _gap("squared", epsilon=8)


def _other(method: Any, size: int, *, epsilon: float = 1, base: Callable[[], Pair] | None = None) -> Variant:
    def run(rows: Rows, stream: RandomStream) -> Floats:
        problem = SubsetProblem(rows.X, rows.y, size, ridge=0.0, feature_bound=1.0, target_bound=1.0)
        drawn = baseline(problem, method, epsilon, "replace_one", random_state=stream).supports
        return np.array(drawn, dtype=np.float64)

    own = base or (lambda: pairs(table(12, 6), "replace_one")[0])
    return Variant(f"{method}, size {size}, epsilon {epsilon}", run, _one(own), epsilon=epsilon)


def _split_votes(blocks: int) -> Pair:
    """Return neighbours of which one block votes for a column alone, or for that of the other blocks."""
    X = np.tile([0.0, 1.0, 0.0, 0.0], (3 * blocks, 1))
    y = np.ones(3 * blocks)
    X[0::blocks] = 0.0
    base = Rows(X, y)
    first, other = np.eye(4)[0], np.eye(4)[1]
    return Pair("a block's vote turns", base.replaced(first, 1.0), base.replaced(other, 1.0))


FAMILIES: Families = {
    "selection.extremes.replace_one": (*_laws(), *_inputs()),
    "selection.SubsetSelector": tuple(_doors()),
    "selection.gap_condition": tuple(_gaps()),
    "selection.enumeration": (
        _other("enumeration", 1, base=partial(far, "replace_one")),
        _other("enumeration", 3, epsilon=8, base=partial(far, "replace_one", 3)),
    ),
    "selection.screening": (
        _other("screening", 1, base=partial(far, "replace_one")),
        _other("screening", 3, base=partial(far, "replace_one", 3)),
        _other("screening", 3, epsilon=8, base=partial(far, "replace_one", 3)),
    ),
    "selection.lasso_votes": (
        *(
            _other(LassoVotes(blocks=blocks), 1, base=partial(_split_votes, blocks), epsilon=epsilon)
            for blocks in (2, 5)
            for epsilon in (1, 4)
        ),
        _other(LassoVotes(blocks=5), 2, base=partial(_split_votes, 5), epsilon=4),
    ),
}
