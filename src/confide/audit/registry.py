"""What is claimed: each mechanism, release, engine and estimator with how to attack it.

A `Claim` says what is promised (epsilon, delta, adjacency), where that is proved, on which neighbouring
tables it is tried and how it is run. The layers of the audit read it: `exact` its laws, `blackbox` its
outputs, `replay` and `sides` one whole run. The claims themselves are in `confide.audit.promises`, a module a
room; `claims` loads them. A public name that no claim covers and that `exempt.EXEMPT` does not excuse fails
the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.errors import ParameterError
from confide.mechanisms import RandomStream, is_certified
from confide.privacy import Adjacency, exact
from confide.privacy.exact import Amount

Floats = NDArray[np.float64]
#: One whole run: (table, stream) -> what it shows, as numbers.
Run = Callable[[Any, RandomStream], Any]
#: Outcome -> its probability, within [low, high]; complete. An outcome is a number or a tuple of numbers, or
#: a text for what is lumped together (a tail).
Law = Mapping[Any, tuple[Fraction, Fraction]]


class Kind(Enum):
    """What a claim is about, from the ground up."""

    MECHANISM = "mechanism"
    RELEASE = "release"
    ENGINE = "engine"
    ESTIMATOR = "estimator"


@dataclass(frozen=True)
class Pair:
    """Two tables, neighbours under the adjacency of the claim.

    Parameters
    ----------
    name : str
        Why this pair: ``"extreme row"``, ``"tie"``, ...
    here, there : object
        Whatever the claim's own functions take.
    """

    name: str
    here: Any = field(repr=False)
    there: Any = field(repr=False)


@dataclass(frozen=True)
class Target:
    """A certified model to poison: what `poison` retrains on changed tables.

    Parameters
    ----------
    table : object with X [n, p] and y [n]
        `neighbours.Rows`, whose cells lie within +-1.
    queries : float array [q, p]
        What the model is asked.
    fit : function (table) -> object with ``stability(X) -> (labels, k)``
    labels : tuple of float
        The classes, in order.
    """

    table: Any = field(repr=False)
    queries: Any = field(repr=False)
    fit: Callable[[Any], Any] = field(repr=False)
    labels: tuple[float, ...] = (-1.0, 1.0)


@dataclass(frozen=True)
class Claim:
    """One promise and how it is tried.

    Parameters
    ----------
    name : str
        ``"room.what"``, unique.
    kind : Kind
    epsilon, delta : Fraction
        What one run promises.
    adjacency : Adjacency
    proof : str
        Theorem or section, and the docstring that has it.
    pairs : function () -> iterable of Pair
        The neighbours, worst first: a quick audit takes the first ones.
    run : function (table, stream) -> array [d]
        One whole run; its output as numbers. The stream is the operating system's or a seeded one.
    outputs : function (table, count, stream) -> array [count, d], optional
        Many runs at once. By default `run`, so many times, each on its own child of the stream.
    law : function (table) -> Law, optional
        The exact law of one run, where outputs can be enumerated.
    fits : bool
        Whether rows of `outputs` are the outcomes of `law`, so that draws can be held against it.
    search : function (value) -> Pair, optional
        Climbs from pair to pair by a value that the exact layer gives: its measured epsilon.
    one_run : function (stream) -> (bits, guesses), two int arrays [m], optional
        One training with m canaries, each set by a coin (+1, -1), and what its output says of them; 0 to
        abstain.
    target : Target, optional
        A certified model whose distances `poison` attacks.
    beside : function () -> iterable of Pair
        Neighbours on which the claim assumes what does not hold, for the side channels alone: what a run
        shows beside its result must not say on which of them it is.
    covers : tuple of str
        Public names (``"confide.mechanisms.discrete_laplace"``) and entries of the rooms' own tables
        (``"selection.mechanism:exponential"``) that this claim is about.
    draws, quick : int
        Runs a table of the black box, in a full and in a quick audit.
    note : str
        What a privacy officer should know, such as a run time that depends on the data.
    replayed : bool
        Whether `run` draws by mechanisms that `replay` records; False for the mechanisms themselves.
    fuzzed : bool
        Whether the claim is about all tables; False keeps attacks to its own pairs.
    """

    name: str
    kind: Kind
    epsilon: Fraction
    delta: Fraction
    adjacency: Adjacency
    proof: str
    pairs: Callable[[], Iterable[Pair]] = field(repr=False)
    run: Run = field(repr=False)
    outputs: Callable[[Any, int, RandomStream], Any] | None = field(default=None, repr=False)
    law: Callable[[Any], Law] | None = field(default=None, repr=False)
    fits: bool = True
    search: Callable[[Callable[[Pair], float]], Pair] | None = field(default=None, repr=False)
    one_run: Callable[[RandomStream], tuple[Any, Any]] | None = field(default=None, repr=False)
    target: Target | None = field(default=None, repr=False)
    beside: Callable[[], Iterable[Pair]] = field(default=tuple, repr=False)
    covers: tuple[str, ...] = ()
    draws: int = 400_000
    quick: int = 20_000
    note: str = ""
    replayed: bool = True
    fuzzed: bool = True

    def sample(self, table: Any, count: int, stream: RandomStream) -> Floats:
        """Return the outputs of `count` independent runs, shape [count, d]."""
        if self.outputs is not None:
            rows = np.asarray(self.outputs(table, count, stream), dtype=np.float64)
        else:
            rows = np.array(
                [np.ravel(self.run(table, stream.child(str(i)))) for i in range(count)], dtype=np.float64
            )
        return rows.reshape(count, -1)


_CLAIMS: dict[str, Claim] = {}


def register(claim: Claim) -> Claim:
    """Add a claim.

    Raises
    ------
    ParameterError
        If the name is taken.
    """
    if claim.name in _CLAIMS:
        raise ParameterError(f"The claim {claim.name!r} is registered twice.", "Give it another name.")
    _CLAIMS[claim.name] = claim
    return claim


def promise(
    name: str,
    kind: Kind,
    epsilon: Amount,
    delta: Amount,
    adjacency: Adjacency | str,
    proof: str,
    pairs: Callable[[], Iterable[Pair]],
    run: Run,
    **how: Any,
) -> Claim:
    """Register a claim from amounts (floats mean their shortest decimal) and the name of a relation."""
    amounts = exact(epsilon, "epsilon"), exact(delta, "delta")
    return register(Claim(name, kind, *amounts, Adjacency.parse(adjacency), proof, pairs, run, **how))


def _load() -> None:
    import_module("confide.audit.promises")


def claims(name: str | None = None) -> tuple[Claim, ...]:
    """Return all claims, or those of a name.

    Parameters
    ----------
    name : str, optional
        A claim (``"selection.exponential.huber"``), the beginning of some (``"selection"``), or a covered
        name (``"adassp"``); as Python writes it too (``"confide.train"``, ``"confide.selection"``). Blanks
        around it, and its case where that leaves one name, do not count.

    Raises
    ------
    ParameterError
        If nothing has that name; the nearest names are told.
    """
    _load()
    if name is None:
        return tuple(_CLAIMS.values())
    found = _called(name.strip()) or _called(_spelled(name.strip()))
    if not found:
        raise ParameterError(f"No claim is called {name!r:.80}.", _nearest(name.strip()))
    return found


def _called(name: str) -> tuple[Claim, ...]:
    short = name.removeprefix("confide.")
    return tuple(claim for claim in _CLAIMS.values() if _begins(claim, short) or _covers(claim, name, short))


def _spelled(name: str) -> str:
    """Return the one known name that is this one but for case; this one where there is none, or several."""
    short = name.lower().removeprefix("confide.")
    found = {each for each in _known() if each.lower().removeprefix("confide.") == short}
    return found.pop() if len(found) == 1 else name


def _begins(claim: Claim, name: str) -> bool:
    return f"{claim.name}.".startswith(f"{name}.")


def _covers(claim: Claim, *names: str) -> bool:
    endings = (
        part for each in claim.covers for part in (each, each.rpartition(".")[2], each.rpartition(":")[2])
    )
    return not set(names).isdisjoint(endings)


def beside(name: str) -> str:
    """Return how many claims a public name has, and where others of their rooms are; empty for other names.

    A name is attacked as the claims that cover it; what the room promises beside them is not.
    """
    found, asked = claims(name), name.strip()
    asked = asked if _called(asked) else _spelled(asked)
    if any(_begins(claim, asked.removeprefix("confide.")) for claim in found):
        return ""
    rooms = dict.fromkeys(claim.name.partition(".")[0] for claim in found)
    others = (f"others of the room: --mechanism {room} ({len(claims(room))} claims)" for room in rooms)
    covering, whose = ("1 claim covers", "its name says") if len(found) == 1 else (
        f"{len(found)} claims cover", "their names say")  # fmt: skip
    return f"{covering} {asked}: default options, or those that {whose}; {'; '.join(others)}"


def _nearest(name: str) -> str:
    """Return the remedy for a name that nothing has: the nearest that something has, and the rooms."""
    near = ", ".join(_close(name))
    meant = _uncovered(name) or (f"Did you mean {near}? " if near else "")
    rooms = ", ".join(dict.fromkeys(each.partition(".")[0] for each in _CLAIMS))
    return f"{meant}Rooms are {rooms}; 'confide audit --list' shows every claim."


def _close(name: str) -> list[str]:
    """Return the known names that are nearest; of the package, where it was named: ``confide.train``."""
    from difflib import get_close_matches

    package, short = "confide.", name.lower()
    if not short.startswith(package):
        by_case = {each.lower(): each for each in reversed(_known())}
        return [by_case[each] for each in get_close_matches(short, by_case)]
    plain = [each.removeprefix(package) for each in reversed(_known())]
    by_case = {each.lower(): f"{package}{each}" for each in plain}
    return [by_case[each] for each in get_close_matches(short.removeprefix(package), by_case)]


def _known() -> list[str]:
    """Return what `claims` takes, but for names with a colon, which nobody types: rooms first."""
    rooms = dict.fromkeys(each.partition(".")[0] for each in _CLAIMS)
    covered = [each for claim in _CLAIMS.values() for each in claim.covers]
    endings = [each.rpartition(mark)[2] for each in covered for mark in ".:"]
    known = (*rooms, *_CLAIMS, *(each.rpartition(".")[0] for each in _CLAIMS), *endings, *covered)
    return [each for each in dict.fromkeys(known) if each and ":" not in each]


#: Rooms of the code with public names; those whose claims attack a part of what they do.
_PACKAGES = (
    "ledger", "mechanisms", "pipeline", "prediction", "privacy", "report", "schema", "selection", "service",
    "training", "tune",
)  # fmt: skip
_NEAR = {"ledger": "ledger", "service": "prediction.serving, ledger.requests"}


def _uncovered(name: str) -> str:
    """Say of a public name that no claim covers why, or which claims are near; empty for other names."""
    from confide.audit.exempt import EXEMPT

    room, _, last = name.removeprefix("confide.").rpartition(".")
    rooms = [each for each in _PACKAGES if each in (room or each, last)]
    found = [each for each in rooms if last == each or last in import_module(f"confide.{each}").__all__]
    if not found:
        return ""
    if found[0] in _NEAR:
        return f"No claim covers it as a whole; near are {_NEAR[found[0]]}. "
    reason = EXEMPT.get(f"confide.{found[0]}.{last}", "it draws no noise")
    return f"No claim covers it: {reason}. "


def random_state(stream: RandomStream) -> int | None:
    """Return the `random_state` of an estimator that draws from this stream: None where it is certified."""
    return None if is_certified(stream) else int(stream.bits(1)[0] >> np.uint64(2))
