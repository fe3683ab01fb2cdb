"""scikit-learn shell over the front door of this room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from confide.errors import DataError, ParameterError
from confide.privacy import Adjacency
from confide.schema import loose
from confide.selection.front import draw_support
from confide.selection.losses import loss_of
from confide.selection.named import bounds_before, bounds_for, check_classes, check_types, width_of
from confide.selection.problem import check_rows
from confide.selection.request import make_request
from confide.selection.wide import Bounds, ParquetMatrix, bounded


class SubsetSelector(SelectorMixin, BaseEstimator):
    """Select `size` columns under pure epsilon-DP, with declared bounds.

    Parameters
    ----------
    size : int
        Columns to select.
    epsilon : amount
        Total privacy of one `fit`.
    mechanism : {"exponential", "permute_and_flip", "top_r", "mistakes"}
        ``"mistakes"`` is private under the gap condition alone: its guarantee assumes ``"gap condition"``,
        and a ledger refuses it unless it accepts that by name.
    top : int, optional
        R of ``"top_r"``: the best supports, which keep their scores. Default 2 + (p - size) size.
    loss : str or Loss
        ``"squared"``, ``"huber"``, ``"quantile"`` for numbers; ``"hinge"``, ``"logistic"`` for classes.
    feature_bounds : (lower, upper), numbers or arrays of shape (p,), or dict {column: (lower, upper)}
        Required, from knowledge and not from the data. A dict, or a pair of pandas series, goes by the names
        of the columns of a frame. A symmetric pair of numbers (-b, b) clips and leaves
        cells as they are; any other is clipped, centred at the middle and divided by the half-width. NaN
        counts as the middle. Zeros of a sparse matrix stay zeros with a symmetric pair alone.
    target_bounds : (lower, upper)
        The same for numeric targets; leave out for classes.
    classes : (negative, positive), optional
        Public pair of class labels for hinge and logistic loss: y counts as +1 where it equals the second,
        else as -1, misspelt and missing labels too. An array whose type can hold neither is refused.
        Without it y > 0 is the positive class.
    radius, ridge : float, optional
        In units of the columns and the target as scaled by the bounds. Defaults: radius
        b_y / (b_x sqrt(size)), four times that for hinge and logistic loss; ridge 4 b_x^2.
    adjacency : Adjacency or str
    max_rows_per_person : int
        Largest number of rows that one privacy unit may have: the draw spends epsilon over it a row. With
        more than 1 this is declared and cannot be enforced on arrays: the guarantee carries the assumption
        ``"at most m rows a person"``. `confide.select` enforces it through an id column.
    ledger : Ledger or str, optional
        Charged before any cell is used. None marks the guarantee ``"unrecorded"``.
    random_state : int, optional
        Noise seed for tests; marks the guarantee ``"seeded"``. None draws from the operating system.

    Attributes
    ----------
    support_ : ndarray of shape (size,)
        Numbers of the selected columns, increasing.
    guarantee_ : Guarantee
    result_ : SelectionResult
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    A step before this one in a `Pipeline` that learns from data (`StandardScaler`, an imputer) is not covered
    by the guarantee: scale by declared bounds instead, which this class does itself.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(2000, 8))
    >>> y = X[:, 2] - X[:, 5]
    >>> selector = SubsetSelector(2, 5, feature_bounds=(-1, 1), target_bounds=(-2, 2), random_state=0)
    >>> selector.fit(X, y).get_support(indices=True)
    array([2, 5])
    """

    def __init__(
        self,
        size: Any,
        epsilon: Any,
        *,
        mechanism: str = "exponential",
        top: int | None = None,
        loss: Any = "squared",
        feature_bounds: Any = None,
        target_bounds: Any = None,
        classes: Any = None,
        radius: float | None = None,
        ridge: float | None = None,
        adjacency: Adjacency | str = "replace_one",
        max_rows_per_person: int = 1,
        ledger: Any = None,
        random_state: int | None = None,
    ) -> None:
        self.size = size
        self.epsilon = epsilon
        self.mechanism = mechanism
        self.top = top
        self.loss = loss
        self.feature_bounds = feature_bounds
        self.target_bounds = target_bounds
        self.classes = classes
        self.radius = radius
        self.ridge = ridge
        self.adjacency = adjacency
        self.max_rows_per_person = max_rows_per_person
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, **refused: Any) -> SubsetSelector:
        """Select, charging the ledger first.

        Parameters
        ----------
        X : array-like, memory map, CSR or `confide.selection.ParquetMatrix` of shape (n, p)
        y : array-like of shape (n,) or (n, 1)
        **refused
            Nothing else is taken: a `sample_weight` scales one person's influence, and has no public cap
            here (TypeError).

        Returns
        -------
        self

        Raises
        ------
        ParameterError, UnsupportedError
            Before any data is looked at.
        DataError, ValueError
            From shapes and types, before the charge.
        RefusedError
            From the ledger.
        """
        if refused:
            raise TypeError(
                f"SubsetSelector.fit got {', '.join(map(repr, sorted(refused)))}. Weights scale a person's "
                "influence and have no public cap here: leave them out."
            )
        bounds = bounds_before(self.feature_bounds)
        target, target_bound = self._target_bounds()
        self._request(width_of(X), bounds, target_bound)
        try:
            return self._fit(X, y, target, target_bound)
        except BaseException:
            # A refused or failed fit leaves nothing half-fitted, and no older support under new parameters.
            for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
                delattr(self, name)
            raise

    def _request(self, candidates: int | None, bounds: Bounds, target_bound: float | None) -> Any:
        return make_request(
            size=self.size,
            epsilon=self.epsilon,
            candidates=candidates,
            mechanism=self.mechanism,
            top=self.top,
            loss=self.loss,
            radius=self.radius,
            ridge=self.ridge,
            feature_bound=bounds.symmetric or 1.0,
            target_bound=target_bound,
            adjacency=self.adjacency,
            unit="row" if self.max_rows_per_person == 1 else "person",
            rows_per_unit=self.max_rows_per_person,
            assumptions=()
            if self.max_rows_per_person == 1
            else (f"at most {self.max_rows_per_person} rows a person",),
            random_state=self.random_state,
            recorded=self.ledger is not None,
        )

    def _fit(self, X: Any, y: Any, target: Bounds | None, target_bound: float | None) -> SubsetSelector:
        if isinstance(X, ParquetMatrix):
            self.n_features_in_ = X.shape[1]
            self.feature_names_in_ = np.array(X.names, dtype=object)
        else:
            loose.check_features(X)
            X = loose.matrix_of(X)
            loose.check_table(X)
            check_types(X)
            # Values are secret: only types and shapes are checked, and no row is needed.
            X = validate_data(
                self, X, accept_sparse="csr", dtype=None, ensure_all_finite=False, ensure_min_samples=0
            )
            loose.check_numeric(X)
        labels = self._labels(y, X.shape[0], target)
        names = getattr(self, "feature_names_in_", None)
        bounds = bounds_for(self.feature_bounds, names, X.shape[1])
        request = self._request(X.shape[1], bounds, target_bound)
        if Adjacency.parse(self.adjacency) is not Adjacency.ADD_REMOVE_ONE:  # there n is secret
            check_rows(request.size, X.shape[0])
        shown = [f"x{j}" for j in range(X.shape[1])] if names is None else [str(name) for name in names]
        self.result_ = draw_support(
            lambda: (bounded(X if isinstance(X, ParquetMatrix) else loose.real(X), bounds)[0], labels()),
            tuple(shown),
            request,
            ledger=self.ledger,
            label=type(self).__name__,
        )
        self.support_ = np.array(self.result_.indices, dtype=np.int64)
        self.guarantee_ = self.result_.guarantee
        return self

    def _target_bounds(self) -> tuple[Bounds | None, float | None]:
        """Return the bounds of y and b_y; (None, None) where y is a class."""
        if loss_of(self.loss).labels:
            if (
                self.target_bounds is not None
                and Bounds.of(self.target_bounds, "target_bounds").symmetric != 1
            ):
                raise ParameterError(
                    f"The 'target_bounds' parameter is {self.target_bounds!r:.80} for classes.",
                    "Leave it out, and pass 'classes' where y is not -1 and +1.",
                )
            if self.classes is not None and not _is_pair(self.classes):
                raise ParameterError(
                    f"The 'classes' parameter is {self.classes!r:.80}.", "Pass two different labels."
                )
            return None, None
        if self.classes is not None:
            raise ParameterError(
                f"The 'classes' parameter is {self.classes!r:.80} for a numeric loss.",
                "Leave it out, or use loss='logistic' or 'hinge'.",
            )
        target = Bounds.of(self.target_bounds, "target_bounds")
        if not target.scalar:
            raise ParameterError("The 'target_bounds' parameter holds arrays.", "Pass a pair of numbers.")
        return target, target.symmetric or 1.0

    def _labels(self, y: Any, n: int, target: Bounds | None) -> Callable[[], np.ndarray]:
        """Check shape and type of the labels, and return a function that reads them."""
        if y is None:
            raise ValueError("This estimator requires y to be passed, but the target y is None.")
        values = np.asarray(loose.vector_of(y))
        loose.check_real(values, "y")
        if values.ndim == 2 and values.shape[1] == 1:
            import warnings

            from sklearn.exceptions import DataConversionWarning

            warnings.warn(
                DataConversionWarning("A column-vector y was passed when a 1d array was expected."),
                stacklevel=4,
            )
            values = values[:, 0]
        if values.shape != (n,):
            raise ValueError(f"The label has shape {values.shape}. Pass ({n},): one label for each row of X.")
        if target is None and self.classes is not None:
            check_classes(y, list(self.classes))
            positive = self.classes[1]
            return lambda: np.array(
                [1.0 if loose.equal(cell, positive) else -1.0 for cell in values.tolist()]
            )
        loose.check_number_labels(y)
        if values.dtype.kind not in "fiubO":
            raise DataError(
                f"The label has type {values.dtype}.", "Pass numbers, or 'classes' for a loss of classes."
            )
        if target is None:
            return lambda: loose.numbers(values)
        return lambda: target.scale(loose.numbers(values), slice(None))

    def _get_support_mask(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleMethodOverride]
        check_is_fitted(self, "result_")
        mask = np.zeros(self.n_features_in_, dtype=bool)
        mask[self.support_] = True
        return mask

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        # Noise from the operating system unless seeded.
        tags.non_deterministic = self.random_state is None
        return tags


def _is_pair(classes: Any) -> bool:
    try:
        return len(loose.declared_classes(classes)) == 2
    except ParameterError:
        return False
