"""Releases by their names."""

from __future__ import annotations

from collections.abc import Callable

from confide.errors import ParameterError, UnsupportedError
from confide.prediction.laws import Release
from confide.prediction.ptr import propose_test_release
from confide.prediction.response import global_law, response_law
from confide.prediction.smooth import cauchy_law, laplace_law
from confide.privacy.exact import Amount, exact, show

#: The release by epochs, which is no function of one query.
SPARSE_VECTOR = "sparse_vector"


def _pure(make: Callable[[Amount, int], Release], name: str) -> Callable[[Amount, Amount, int], Release]:
    def law(epsilon: Amount, delta: Amount, classes: int) -> Release:
        if exact(delta, "delta"):
            raise UnsupportedError(
                f"The release {name!r} has no delta; 'delta' is {show(exact(delta, 'delta'))}.", "Pass 0."
            )
        return make(epsilon, classes)

    return law


_RELEASES: dict[str, Callable[[Amount, Amount, int], Release]] = {
    "response": lambda epsilon, delta, classes: response_law(epsilon, classes, delta),
    "cauchy": _pure(cauchy_law, "cauchy"),
    "laplace": laplace_law,
    "ptr": propose_test_release,
    "global": _pure(global_law, "global"),
}


def release_of(name: str, epsilon: Amount, classes: int, delta: Amount = 0) -> Release:
    """Return a release.

    Parameters
    ----------
    name : {"response", "cauchy", "laplace", "ptr", "global"}
        ``"sparse_vector"`` is `StableAnswers`.
    epsilon, delta : amount
        Of one answer. "cauchy" and "global" take no delta, "laplace" and "ptr" need one.
    classes : int
        "cauchy" and "laplace": 2.
    """
    if name not in _RELEASES:
        raise ParameterError(
            f"The 'release' parameter is {name!r:.80}.",
            f"Pass one of {', '.join(map(repr, (*_RELEASES, SPARSE_VECTOR)))}.",
        )
    return _RELEASES[name](epsilon, delta, classes)
