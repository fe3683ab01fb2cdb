"""Engines beyond those of `confide.training.front.fit`, each behind one protocol (`ask.Engine`).

A module has ``make(ask)``, which checks a request before any data is read and returns an engine: its
``quote(job)``, what it charges, and ``fit(job, charge)``. A new engine is a module and a line of `_MODULES`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from confide.errors import UnsupportedError
from confide.privacy import Adjacency

if TYPE_CHECKING:
    from confide.training.engines.ask import Ask, Engine

#: Engine -> module.
_MODULES = {
    "dpsgd": "dpsgd",
    "semi_sensitive": "semi",
    "adassp": "secret",
    "boosted_adassp": "secret",
}
#: The same for classes; ``auto`` is closed_form or randomized_response, by public quantities.
_CLASS_MODULES = {
    "auto": "classes",
    "closed_form": "classes",
    "randomized_response": "classes",
    "dpsgd": "dpsgd",
    "objective": "secret",
}
#: Engines that use private columns.
USES_PRIVATE = ("dpsgd", "semi_sensitive", "adassp", "boosted_adassp", "objective")
#: Engines that read no column as public.
ONLY_PRIVATE = ("adassp", "boosted_adassp", "objective")


def names(*, classes: bool) -> tuple[str, ...]:
    """Return the engines that a user may name, besides those of `front.fit`."""
    return tuple(name for name in (_CLASS_MODULES if classes else _MODULES) if name != "auto")


def default_engine(*, classes: int, model: Any, adjacency: Adjacency, public: bool, pure: bool) -> str:
    """Return the engine of a request that names none.

    Parameters
    ----------
    classes : int
        Number of classes; 0 for a number.
    model : str
        Anything but ``"linear"`` is `dpsgd`.
    adjacency : Adjacency
    public : bool
        Whether any column may be used as public.
    pure : bool
        Whether delta is 0, which Gaussian noise cannot meet: classes are then fitted by randomised response
        of labels, or where rows are secret and there are two of them by objective perturbation.
    """
    if model != "linear":
        return "dpsgd"
    secret = not public or adjacency in (Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE_ONE)
    if not classes:
        return "boosted_adassp" if secret else "rounds"
    if not secret:
        return "randomized_response" if pure else "auto"
    return "objective" if classes == 2 and pure else "dpsgd"


def make(ask: Ask) -> Engine:
    """Check a request and return its engine.

    Raises
    ------
    ParameterError, UnsupportedError
    """
    known = _MODULES if ask.classes is None else _CLASS_MODULES
    if ask.engine not in known:
        from confide.training.request import ENGINES

        own = ENGINES if ask.classes is None else ()
        listed = ", ".join(map(repr, (*own, *names(classes=ask.classes is not None))))
        what = "a number" if ask.classes is None else "classes"
        raise UnsupportedError(
            f"The 'engine' parameter is {ask.engine!r:.80} for a label of {what}.", f"Pass one of {listed}."
        )
    return import_module(f"confide.training.engines.{known[ask.engine]}").make(ask)
