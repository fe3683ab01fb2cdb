"""What a guarantee says and does not say, in plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from confide.privacy import NONPRIVATE, SEEDED, UNRECORDED, Adjacency, Event, Guarantee, round_up, show

#: Prose of the marks that a guarantee can carry in its assumptions, for people who meet them first here.
MARKS = {
    NONPRIVATE: "This fit was made without any noise. It protects nobody: handle it like the raw data.",
    SEEDED: (
        "The noise came from a fixed seed, for a test. Whoever knows the seed can take the noise away "
        "again, so this result protects nobody: handle it like the raw data."
    ),
    UNRECORDED: (
        "No ledger recorded this release. Other releases from the same table are not added to it, so the "
        "loss of privacy in all may be larger than stated here."
    ),
}
#: Marks that take the guarantee away.
VOID = (NONPRIVATE, SEEDED)


def void_marks(guarantee: Guarantee) -> tuple[str, ...]:
    """Return the marks of `guarantee` under which nothing is protected."""
    return tuple(mark for mark in VOID if mark in guarantee.assumptions)


def number(value: float, digits: int = 3) -> str:
    """Return a number for people: `digits` significant digits, no exponent between 1e-4 and 1e6."""
    if not math.isfinite(value):
        return "infinite" if value > 0 else "minus infinite" if value < 0 else "not a number"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if -5 <= size < 6:
        return f"{value:.{max(digits - 1 - size, 0)}f}"
    return f"{value:.{digits - 1}e}"


def signed(value: float, digits: int = 3) -> str:
    """Return `number` with its sign, a true minus sign for negative ones."""
    sign = "" if value == 0 else "+" if value > 0 else "\u2212"
    return f"{sign}{number(abs(value), digits)}"


def at_most(value: float, digits: int = 3) -> float:
    """Return `value` rounded up to `digits` digits, so that "at most" stays true where it is printed."""
    return float(round_up(value, digits))


def percent(share: float, digits: int = 1) -> str:
    """Return a share as per cent."""
    return f"{100 * share:.{digits}f}\u00a0%"


def listing(names: Sequence[str], most: int = 12) -> str:
    """Return names as a list in prose, cut after `most`."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def chance(delta: float) -> str:
    """Return a small probability as "1 in 1,000,000"."""
    return "0" if delta == 0 else f"1 in {round(1 / delta):,}" if delta < 0.1 else number(delta)


def guess_limit(epsilon: float, delta: float) -> float:
    """Return how often anyone can tell two equally likely neighbours apart, at most.

    By the definition of (epsilon, delta), P(right) <= (e^epsilon + delta) / (1 + e^epsilon): sum the bounds
    p_0(S) <= e^epsilon p_1(S) + delta and the same for the complement with the roles exchanged.
    """
    if math.isinf(epsilon):
        return 1.0
    small = math.exp(-epsilon)
    return min(1.0, (1 + delta * small) / (1 + small))


def gaussian_multiplier(event: Event) -> float | None:
    """Return the noise multiplier of the one Gaussian release that an event amounts to, or None.

    Gaussian releases after one another compose to a Gaussian one: 1 / multiplier^2 adds.
    """
    parts = event.parts if event.mechanism == "composed" else (event,)
    found = [part.get("noise_multiplier") for part in parts]
    single = event.count == 1 and all(part.mechanism == "gaussian" and part.count == 1 for part in parts)
    if not single or not found or not all(isinstance(value, float) and value > 0 for value in found):
        return None
    return 1.0 / math.sqrt(sum(1.0 / value**2 for value in found))  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


def gaussian_guess_limit(noise_multiplier: float) -> float:
    """Return the exact value of `guess_limit` for one Gaussian release: Phi(1 / (2 noise_multiplier))."""
    return 0.5 * math.erfc(-0.5 / noise_multiplier / math.sqrt(2))


def protected(adjacency: Adjacency, unit: str, label: str) -> str:
    """Return what of one unit is kept secret."""
    of = f"any one {unit}"
    return {
        Adjacency.REPLACE_LABEL: f"the {label} of {of}",
        Adjacency.REPLACE_PRIVATE_PART: f"the private columns and the {label} of {of}",
        Adjacency.REPLACE_ONE: f"everything about {of}",
        Adjacency.ADD_REMOVE_ONE: f"everything about {of}, and whether it is in the table at all",
    }[adjacency]


def headline(guarantee: Guarantee, label: str) -> str:
    """Return the guarantee in one plain sentence with its adjacency."""
    what = guarantee.adjacency.sentence.format(unit=guarantee.unit)
    void = void_marks(guarantee)
    if NONPRIVATE in void:
        return f"This model is not private: {what} may be visible in it."
    epsilon = float(guarantee.epsilon)
    factor = number(at_most(math.exp(epsilon))) if epsilon < 500 else f"e^{show(guarantee.epsilon)}"
    slack = f" (plus a slack of {chance(float(guarantee.delta))})" if guarantee.delta else ""
    if void:
        return (
            f"This model is not private, because its noise was seeded. With secret noise, {what} would "
            f"change the probability of any result by a factor of at most {factor}{slack}."
        )
    return (
        f"This model {degree(epsilon)} {protected(guarantee.adjacency, guarantee.unit, label)}: {what} "
        f"changes the probability of any result by a factor of at most {factor}{slack}."
    )


def degree(epsilon: float) -> str:
    """Return a verb for a guarantee: no word may promise more than the factor beside it.

    The limits are a convention: at epsilon = 4 and 10 a guess between two values is right up to 98.2 % and
    99.995 % of the time.
    """
    return "protects" if epsilon <= 4 else "only weakly protects" if epsilon <= 10 else "hardly protects"


def odds(guarantee: Guarantee, label: str) -> str:
    """Return the guarantee as a limit on guessing, for one unit."""
    limit = min(1.0, at_most(guess_limit(float(guarantee.epsilon), float(guarantee.delta))))
    label_only = guarantee.adjacency is Adjacency.REPLACE_LABEL
    of = f"one {guarantee.unit}"
    between = f"two values of the {label} of {of}" if label_only else f"two versions of {of}"
    sentence = (
        "Put to the test: someone who knows everything else about the table and is torn between "
        f"{between}, half and half, guesses right at most {percent(limit)} of the time after seeing this "
        "model (50\u00a0% without it)."
    )
    multiplier = gaussian_multiplier(guarantee.event)
    if multiplier:
        exact = at_most(gaussian_guess_limit(multiplier))
        sentence += f" For the Gaussian noise used here the exact limit is {percent(min(exact, limit))}."
    return sentence


def not_covered(
    guarantee: Guarantee, public: Sequence[str], label: str, *, grouped: bool = False
) -> list[tuple[str, str]]:
    """Return what the guarantee does not cover: (short name, sentence) each.

    `grouped`: the schema's ids say whose rows are whose, so that one unit's rows are protected together.
    """
    unit, relation = guarantee.unit, guarantee.adjacency
    items: list[tuple[str, str]] = []
    if relation in (Adjacency.REPLACE_LABEL, Adjacency.REPLACE_PRIVATE_PART):
        named = f" ({listing(list(public))})" if public else ""
        items.append(
            (
                "Public columns",
                f"The columns declared public{named} are used as they are, without noise, and so is the "
                "number of rows. If one of them is in truth a secret, it is not protected: Confide cannot "
                "check that.",
            )
        )
    elif relation is Adjacency.REPLACE_ONE:
        items.append(("The number of rows", f"How many {plural(unit)} there are is taken as public."))
    items += [
        _several(unit, grouped),
        (
            "What is true of people like you",
            f"The model is there to say how the label ({label}) varies with the public columns. It says "
            "that about people who are not in the table too, and the guarantee does not prevent such "
            "inferences.",
        ),
        (
            "Other releases",
            "Each further release from the same table adds to the loss. The ledger adds up what was "
            "charged to it, and knows of nothing else.",
        ),
        (
            "Declarations",
            "Bounds and categories are meant to come from knowledge, not from this table. Bounds that "
            "were read off the data would reveal something the guarantee does not count.",
        ),
        (
            "The table itself",
            "Who can read the raw data, backups and the machine is outside this guarantee, as is how long "
            "a computation takes.",
        ),
    ]
    return items


def _several(unit: str, grouped: bool) -> tuple[str, str]:
    """Return the item on what several units have in common."""
    cost = "For k of them together epsilon counts k times, and delta grows faster than k times"
    if grouped or unit == "person":
        each = f"The guarantee is for one {unit}, with all rows that count"
        return (
            f"What several {plural(unit)} share",
            f"{each}. {cost}: a fact that is the same for all of a family, say, is protected less.",
        )
    return (
        f"More than one {unit}",
        f"The guarantee is for one {unit}. {cost}: whoever has several {plural(unit)} in the table is "
        "protected less.",
    )


def plural(unit: str) -> str:
    """Return a unit's name in the plural."""
    return {"person": "people", "household": "households"}.get(unit, f"{unit}s")


#: Units that a declaration names in the plural, for "per year".
_ONE = {
    many: many.removesuffix("s")
    for many in (
        "seconds",
        "minutes",
        "hours",
        "days",
        "weeks",
        "months",
        "years",
        "dollars",
        "euros",
        "pounds",
    )
}


def column_words(name: str, schema: Any) -> str:
    """Return the name of an encoded column for people: ``region: south`` for ``region=south``."""
    if schema is None:
        return name
    for column in schema.columns:
        if column.role in ("public", "private") and not column.numeric and name in column.feature_names:
            return f"{column.name}: {name[len(column.name) + 1 :]}"
    return name


def effect_words(name: str, coefficient: float, schema: Any) -> str:
    """Return a coefficient in the columns' own units, or empty where the schema does not tell.

    A numeric column is encoded by its half-width, so one unit of it moves the prediction by
    coefficient / half-width; under a log label that is a ratio.
    """
    label = None if schema is None else schema.label
    if schema is None or label is None or not label.numeric:
        return ""
    per = ""
    for column in schema.public:
        if column.numeric and name == column.name and column.transform is None:
            coefficient /= column.half_width
            per = f" per {_ONE.get(column.unit, f'1 {column.unit}')}" if column.unit else " per unit"
            break
    else:
        if not any(name in c.feature_names and not c.numeric for c in schema.public):
            return ""
    if label.transform == "log":
        return f"{signed(100 * math.expm1(min(coefficient, 50)))}\u00a0%{per}"
    if label.transform is not None:
        return ""
    return f"{signed(coefficient)}{f' {label.unit}' if label.unit else ''}{per}"
