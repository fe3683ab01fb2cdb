"""What each layer tries and can show, what none of them sees, and how numbers are shown.

Words for people, in one place: the page of an audit, ``docs/guarantees.md`` and the command read them here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction


@dataclass(frozen=True)
class Told:
    """What people are told of a layer.

    Parameters
    ----------
    tries, shows : str
        Two halves of one sentence.
    judged : bool
        False for what no guarantee covers: it is reported, and breaks nothing.
    """

    tries: str
    shows: str
    judged: bool = True

    @property
    def sentence(self) -> str:
        """Both halves."""
        return f"{self.tries}; it can show {self.shows}."


#: Layer of `run.LAYERS` -> what it does. A test holds the two against each other.
LEGEND: dict[str, Told] = {
    "exact": Told(
        "Computes the probability of every output on two small neighbouring tables, found by search",
        "a lower bound on epsilon that no chance is in, for laws that can be written down",
    ),
    "black box": Told(
        "Learns to tell the outputs of two neighbouring tables apart, and counts on fresh outputs how well",
        "a lower bound on epsilon, with confidence, blind to differences that it did not learn",
    ),
    "law of draws": Told(
        "Runs a mechanism on one table many times and counts the outcomes against its exact law",
        "that the code draws from another law than the one that its proof is about",
    ),
    "noise": Told(
        "Holds the noise that a run added against the law that its public parameters name",
        "noise that is narrower than declared, by a hundredth in a full audit, or used twice",
    ),
    "one run": Told(
        "Plants many rows in one training, and guesses from its output which were in",
        "a lower bound on epsilon of a whole training, with confidence, as a rule far below the claim",
    ),
    "replay": Told(
        "Records what a run asks of its mechanisms, and gives the same noise to the neighbouring table",
        "one counter-example to a declared sensitivity, also one too rare for any count of outputs",
    ),
    "side channels": Told(
        "Compares exceptions, messages, warnings, charges, calls, and all that a model holds, on neighbours",
        "one difference that tells the two apart beside the result",
    ),
    "support": Told(
        "Looks for outputs that only one of two neighbouring tables gives, down to the last bits of floats",
        "a lower bound on epsilon, with confidence, from noise that does not cover all outputs",
    ),
    "poisoning": Told(
        "Trains a certified model anew on tables within its certified distance",
        "one certified answer that turns",
    ),
    "price": Told(
        "Composes the declared noise of all calls of a run by code of the audit's own",
        "a run that costs more than it claims, charges or tells the ledger",
    ),
    "entropy": Told(
        "Watches where an unseeded run reads the bits of its noise",
        "bits that do not come fresh from the operating system, and noise that is used again",
    ),
    "run time": Told(
        "Times a run on a table and on its neighbour",
        "how well time tells the two apart, which no guarantee covers",
        judged=False,
    ),
}  # fmt: skip


def judged(layer: str) -> bool:
    """Return whether a layer can break a claim; one without a legend can."""
    return layer not in LEGEND or LEGEND[layer].judged


#: What no layer sees: name -> why it matters. ``docs/guarantee.md`` and ``docs/how-to/audit.md`` say more.
UNSEEN: dict[str, str] = {
    "Your declarations": "That bounds and categories were not read off the table, that columns declared "
    "public are public, and that a person has no more rows than the schema says. Proofs take these as given.",
    "Time": "No guarantee covers how long a run takes; it is measured and reported, not judged. Only the "
    "service lets answers leave on a public schedule.",
    "Your machine": "Memory, swap, processor, the files of a ledger and of a certified model, backups that "
    "are rolled back, and who can read them.",
    "Randomness of the operating system": "Whether its bits can be predicted, and who controls them.",
    "Rare events": "Runs are finite. What happens once in a million runs is seen by the exact layer, where "
    "outputs can be listed, by replay, or by nobody.",
    "Other tables": "The tables of an audit are small and bad on purpose, not all tables. A proof is about "
    "all.",
    "Poisoning of other models": "Only certified models are trained anew on changed tables. No other claim "
    "says what a liar among the rows can do to a model.",
    "What is not claimed": "An audit tries the claims that it lists. What a result means for somebody, and "
    "whether epsilon is small enough, no claim says.",
    "Code around Confide": "A scaler fitted on secret rows, settings that were tried on the table, a log "
    "line in a notebook, a plot of a certified model's margins.",
    "Several ledgers": "Budgets of two ledgers on the same people add up, and nothing here knows it.",
}

ROUNDED = (
    "Claims are rounded up and measured bounds down, to 4 significant digits, and more where a bound would "
    "not be seen to pass its claim. Verdicts are decided by the exact values."
)

#: What the words of the matrix say.
WORDS = (
    "Held: the layer tried, could have broken the claim, and did not. Too weak: so few runs cannot break "
    "the claim, not even if every guess were right. Nothing moved: replay met no input that its neighbours "
    "move, so no sensitivity was tried. Does not apply: the layer has nothing to try on this claim. Not in "
    "a quick audit: only a full audit tries the layer on this claim. Broken: an attack succeeded. Reported: "
    "measured, but no guarantee covers it."
)

#: Term -> what it means, for somebody who reads no proofs.
TERMS: dict[str, str] = {
    "Claim": "What Confide promises of one run of a mechanism, release, engine or estimator: its epsilon, "
    "its delta, and between which neighbours.",
    "Epsilon": "How well whoever sees a result can tell two neighbouring tables apart: no outcome is more "
    "than exp(epsilon) times as probable on one as on the other, but for delta. 0 tells nothing; at 1 it is "
    "2.7 times.",
    "Delta": "The probability by which that bound may be missed. 0 where none stands.",
    "Neighbours": "Two tables that differ in one person (or row). Replace label: in the label alone; all "
    "else is public. Replace one: in the whole row, the number of rows is public. Replace private part: in "
    "the secret columns and the label of a row. Add or remove one: the person is in the table or not, so "
    "the number of rows is secret too.",
    "Sensitivity": "How far what is computed may move between neighbours. Noise is scaled to it, so one "
    "that is declared too small breaks the claim.",
    "Exact law": "The probabilities of all outcomes of a run, computed and not counted.",
    "p-value": "How probable what was counted would be at most if the claim held. A very small one breaks "
    "the claim; empty where no chance is in an attack.",
    "Holm": "The rule by which all p-values are decided together, so that many attacks raise no false alarm.",
    "Planted rows": "Rows that are put into a training or left out by the toss of a coin, to see whether "
    "its result tells which.",
    "Names of neighbours": 'Each says what differs between the two tables, and is made of parts: "sign flip, '
    'label kept, query 2". They are listed below.',
}

_DIGITS = 4
#: That tell any two doubles apart.
_ALL = 17


def many(count: int, one: str, more: str = "") -> str:
    """Return ``1 claim``, ``2 claims``."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def held(measured: int, unmeasured: int) -> str:
    """Return how many claims hold, and on what they rest."""
    told = f"{many(measured, 'holds', 'hold')} and a part of the claim was measured; "
    rests = {0: "", 1: ", and rests on its proof, and"}.get(unmeasured, ", and rest on their proofs, and")
    on = f"{rests} on layers that look for one counter-example" if rests else ""
    return f"{told}{many(unmeasured, 'holds', 'hold')} with nothing measured{on}."


def up(value: Fraction | float) -> str:
    """Return a claimed amount, rounded up to 4 significant digits."""
    return _shown(value, _DIGITS, ROUND_CEILING)


def down(value: float) -> str:
    """Return a measured bound, rounded down to 4 significant digits; nothing for NaN."""
    return _shown(value, _DIGITS, ROUND_FLOOR)


def both(claimed: Fraction, measured: float) -> tuple[str, str]:
    """Return a claim rounded up, and a bound rounded down, with digits enough to see that it is passed.

    Parameters
    ----------
    claimed : Fraction
    measured : float
        NaN for none.
    """
    pair = up(claimed), down(measured)
    if math.isinf(measured) or not passes(measured, claimed):
        return pair
    for digits in range(_DIGITS, _ALL + 1):
        pair = _shown(claimed, digits, ROUND_CEILING), _shown(measured, digits, ROUND_FLOOR)
        if Fraction(pair[1]) > Fraction(pair[0]):
            break
    return pair


def passes(measured: float, claimed: Fraction) -> bool:
    """Return whether a bound lies above a claim; False for NaN. A float means its shortest decimal."""
    if not math.isfinite(measured):
        return measured == math.inf
    return Fraction(repr(float(measured))) > claimed


def _shown(value: Fraction | float, digits: int, rounding: str) -> str:
    if not isinstance(value, Fraction):
        if not math.isfinite(value):
            return "" if math.isnan(value) else "infinite"
        value = Fraction(repr(float(value)))
    rounded = Context(digits, rounding).divide(value.numerator, value.denominator)
    return f"{float(rounded):.{digits}g}"
