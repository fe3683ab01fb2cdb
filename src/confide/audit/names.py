"""What the names of neighbours mean: all that a finding of a claim, or of a member of its family, can show.

A name is made of parts: ``poisoned: sign flip, label kept, query 2`` is a beginning, a change of a row and
two endings. A test holds the names of all claims and members against these patterns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = r"[+-]?(\d+(\.\d+)?(e[+-]?\d+)?|inf|nan)"
#: Before and after the name of a change; each may stand several times.
_BEGINNING = re.compile(r"poisoned: ")
_ENDING = re.compile(rf"(, label kept|, label too|, [+-]{_NUMBER}|, query \d+|, \d+ a person| comes)$")


@dataclass(frozen=True)
class Name:
    """Names of neighbours that mean one thing.

    Parameters
    ----------
    shown : str
        As people look it up.
    pattern : str
        Of the whole name, but for what stands before and after a change.
    meaning : str
    """

    shown: str
    pattern: str
    meaning: str


#: What differs.
CHANGES: tuple[Name, ...] = (
    Name(
        "sign flip",
        "sign flip",
        "The row that differs has every cell at the upper end of its bounds on one table, at the lower on "
        "the other.",
    ),
    Name(
        "alternating signs",
        "alternating signs",
        "Its cells are at the ends of their bounds in turn, and at the opposite ends.",
    ),
    Name(
        "one column",
        "one column",
        "One cell of it is at an end and at the other, the rest are 0.",
    ),
    Name(
        "zero row",
        "zero row",
        "It is at the ends, and all zeros.",
    ),
    Name(
        "duplicate",
        "duplicate",
        "It has the same cells on both; its label may differ.",
    ),
    Name(
        "beyond the bounds",
        "(the last row is )?beyond the bounds",
        "Cells or labels of the row (or of the last one) lie far outside of their bounds, which must cut "
        "them.",
    ),
    Name(
        "missing, missing label, missing cells",
        "missing( label| cells)?|missing and beyond",
        "There is no value, or an infinite one; and beyond: against one far outside.",
    ),
    Name(
        "ends, ends of the label",
        "ends( of the label)?",
        "A label is at one end of its bounds, and at the other.",
    ),
    Name(
        "middle, end and middle",
        "middle|end and middle",
        "A label is in the middle of its bounds, and at an end.",
    ),
    Name(
        "infinite",
        "infinite",
        "A label is infinite.",
    ),
    Name(
        "the largest numbers",
        "the largest numbers",
        "Labels are the largest numbers that there are.",
    ),
    Name(
        "0 against 1, 0.0 against nan",
        rf"{_NUMBER} against {_NUMBER}",
        "A number or a class, and another one; nan, and a number that is no class, stand for a label that "
        "was not declared.",
    ),
    Name(
        "far from 0, near 2^61",
        r"far from 0|near 2\^61",
        "Numbers differ by as much as they may, where they are so large that their last digits could be "
        "lost.",
    ),
    Name(
        "one coordinate",
        "one coordinate",
        "One of two numbers differs by as much as it may.",
    ),
    Name(
        "climbed",
        "climbed",
        "Found by search: the change that raises the measured epsilon.",
    ),
    Name(
        "one row overflows",
        "one row overflows",
        "One row, of which the numbers of a fit go beyond the largest that there are.",
    ),
    Name(
        "fuzzed 3",
        r"fuzzed \d+",
        "A random table, with a random row that differs and extreme cells; other ones in each audit, but "
        "for a seed.",
    ),
    Name(
        "label 0.73, after 5 others",
        rf"(label|column \d+) {_NUMBER}, after \d+ others",
        "A label, or a cell of that column, of the rows in turn takes values across its bounds; at this one "
        "something is seen.",
    ),
    Name(
        "text, or numbers; two texts; pairs, or a number",
        "(text|pairs), or [a-z ]+|two texts",
        "A row has a text (or pairs) where a number or an id belongs; on the other table another text, or "
        "what is said.",
    ),
    Name(
        "a fraction, many digits, an object",
        "a fraction|no value|a truth value|not a number|a pair|many digits|an object|bytes that are no text",
        "A row has such a thing where an id belongs.",
    ),
    Name(
        "all labels at the upper end but one",
        "all (cells|labels) (at the (upper|lower) end|missing) but (one|those of a row)",
        "Every row has that, but for one on one of the two tables.",
    ),
    Name(
        "one more of rows that are alike",
        "one more of rows that are alike",
        "A row comes that is like the others, where the last bit of a label decides.",
    ),
    Name(
        "all rows of a person",
        "all (rows|labels) of a person|all are (beyond the bounds|missing)",
        "A person's rows, or their labels, all change at once: at the ends, far outside or without a value.",
    ),
    Name(
        "a row alone turns; it goes",
        "a row alone turns|it goes",
        "The table has one row, whose label is at one end and at the other; or the row is gone.",
    ),
    Name(
        "a row comes",
        "a row comes( and decides)?|a row without a number comes",
        "The table has a row more: one that decides what is best, or one that is not numbered as the others.",
    ),
    Name(
        "4 rows, or one more",
        r"\d+ rows, or one more",
        "A table of so many rows, and the same with one more.",
    ),
    Name(
        "row 3; row 0 alone decides",
        r"row \d+( alone decides, \w+)?",
        "That row differs, and no other; alone decides: for one candidate or for the other, under that "
        "relation.",
    ),
    Name(
        "rows are numbered, private cells",
        "rows are numbered|private cells",
        "Every row differs, in cells of which no mechanism's answer may depend.",
    ),
    Name(
        "signs that move most",
        "signs that move most",
        "Signs of a row turn so that products of its columns move by the most that they may.",
    ),
    Name(
        "hinge, quantile",
        "squared|huber|quantile|hinge|logistic",
        "For that loss, the row or the person's rows that move what it adds up by the most that they may.",
    ),
    Name(
        "top_r, hinge",
        "[a-z_]+, (squared|huber|quantile|hinge|logistic)",
        "Likewise, for that mechanism of selection and that loss.",
    ),
    Name(
        "apart, cells",
        "apart, (added|cells|label)",
        "Scores of columns move apart by the most that they may: by a row that is added, by all cells of a "
        "row, or by its label.",
    ),
    Name(
        "support and coefficients turn",
        "support and coefficients turn",
        "A label turns both which columns are best and all their coefficients.",
    ),
    Name(
        "the gap moves most",
        "the gap moves most",
        "The lead of the best columns over the next moves by the most that it may.",
    ),
    Name(
        "the gap on one side alone",
        "the gap on one side alone",
        "The best columns lead far enough on one table, and not on the other.",
    ),
    Name(
        "a class goes, no class at all",
        "a class goes|no class at all",
        "The last row of a class goes, or no label is of a class.",
    ),
    Name(
        "a vote turns, a block's vote turns",
        "a (block's )?vote turns",
        "The row next to a query, or a block of rows, votes otherwise.",
    ),
    Name(
        "distance 23 against 24",
        r"distance \d+ against \d+",
        "Of a certified answer: how many rows must change before it turns, which one row moves by one.",
    ),
    Name(
        "classes differ",
        "classes differ( at once)?|distances fall, classes differ",
        "Answers that one row turns, at distance 0; at once: the first ones; distances fall: and those of "
        "others are one less.",
    ),
    Name(
        "distances rise, the last falls",
        rf"(\d+ distances at the threshold {_NUMBER}|distances about \d+|one "
        "distance) rises?, the last falls|the last distance falls, the others rise",
        "Distances about that number, or so far above the threshold, are one more each, and the last is one "
        "less.",
    ),
    Name(
        "all distances fall, around the threshold",
        "all distances fall|around the threshold",
        "Distances are one less each; or some one less and some one more, about the threshold.",
    ),
    Name(
        "all scores move, tie, far apart",
        r"all scores move|tie|far apart|\d+ (scores|weights|cells)",
        "Of a choice by lot: scores that move by as much as they may; equal ones; ones so far apart that "
        "the worse are next to impossible; or so many scores, weights or cells.",
    ),
    Name(
        "worst of the proof",
        "worst of the proof",
        "Two laws of a run, as far apart as its epsilon and delta allow, so that the bound on the whole is "
        "met.",
    ),
    Name(
        "nothing differs, no rows",
        "nothing differs|no rows",
        "No table is read: the outcome, or its law, is known beforehand.",
    ),
    Name(
        "64000 planted rows",
        r"\d+ planted rows",
        "So many rows in all trainings, each in or out by a coin.",
    ),
)

#: What stands before or after.
PARTS: dict[str, str] = {
    "…, label kept": "The label of the row that differs is the same on both tables.",
    "…, label too": "Its label is at one end on one table and at the other on the other, or far outside.",
    "…, +1": "The row is in one table alone, with that label.",
    "…, query 2": "What the model is asked, by its place among the queries.",
    "…, 3 a person": "The person who differs has so many rows.",
    "… comes": "The row is in one table alone.",
    "poisoned: …": "As its name says after it, for a model whose answers to one query are repeated.",
}


def change(name: str) -> str:
    """Return a name of neighbours without what stands before and after the change."""
    rest = _BEGINNING.sub("", name)
    while _known(rest) is None and (short := _ENDING.sub("", rest)) != rest:
        rest = short
    return rest


def meaning(name: str) -> str | None:
    """Return what a name of neighbours means; None where no entry has it."""
    one = _known(change(name))
    return None if one is None else one.meaning


def _known(changed: str) -> Name | None:
    return next((one for one in CHANGES if re.fullmatch(one.pattern, changed)), None)


def glossary() -> dict[str, str]:
    """Return all names as people look them up, and what they mean."""
    return {**{one.shown: one.meaning for one in CHANGES}, **PARTS}
