"""Errors of the whole house: one enum of failures, whose prose every surface repeats.

An error states a *fact*, the offending public *value* inside that fact, and a *remedy*. A message never
holds a value, count or row of private data: neighbouring tables must meet the same exception, the same
message and the same charge (pitfall K15).
"""

from __future__ import annotations

from enum import Enum


class Failure(Enum):
    """Why a call failed: ``code`` for machines, ``exit_status`` for scripts, ``prose`` for people."""

    PARAMETER = ("parameter", 2, "A parameter is outside its domain.")
    SCHEMA = ("schema", 4, "The declared schema is missing, malformed or does not fit the request.")
    DATA = ("data", 4, "The data do not have the declared public structure.")
    BUDGET = ("budget", 3, "The ledger refuses: the charge does not fit the budget that is left.")
    ASSUMPTION = (
        "assumption",
        3,
        "The ledger refuses: the guarantee rests on an assumption that was not accepted by name.",
    )
    ADJACENCY = (
        "adjacency",
        3,
        "The ledger refuses: the charge is stated for neighbours that the budget does not cover.",
    )
    REFUSED = ("refused", 3, "The ledger refuses this request; its store is in order.")
    LEDGER = ("ledger", 5, "The ledger's store is missing, damaged or was rolled back.")
    OUT_OF_REACH = (
        "out-of-reach",
        5,
        "The ledger's store is out of reach; nothing is known to be wrong with it.",
    )
    TERMS = ("terms", 5, "The ledger exists with another budget; it is as it was.")
    CALIBRATION = ("calibration", 6, "No noise level with the requested guarantee could be computed.")
    ENTROPY = ("entropy", 7, "The source of random bits is broken; nothing may be released.")
    UNSUPPORTED = ("unsupported", 2, "The requested combination is not supported.")

    def __init__(self, code: str, exit_status: int, prose: str) -> None:
        self.code = code
        self.exit_status = exit_status
        self.prose = prose


class ConfideError(Exception):
    """Base of all errors that Confide raises on purpose.

    Parameters
    ----------
    fact : str
        What is wrong, with the public value that is at fault.
    remedy : str, optional
        What to do instead, one sentence.

    Attributes
    ----------
    failure : Failure
        The kind of failure; its ``code`` and ``exit_status`` are stable.
    """

    failure: Failure = Failure.PARAMETER

    def __init__(self, fact: str, remedy: str = "") -> None:
        super().__init__(fact, remedy)
        self.fact = fact
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.fact} {self.remedy}".strip()


class ParameterError(ConfideError, ValueError):
    """A parameter is outside its domain; raised before any data is read or any budget is written."""

    failure = Failure.PARAMETER


class UnsupportedError(ConfideError, ValueError):
    """A combination of options that has no proof or no implementation here."""

    failure = Failure.UNSUPPORTED


class SchemaError(ConfideError, ValueError):
    """The schema is malformed or lacks a declaration that the request needs."""

    failure = Failure.SCHEMA


class DataError(ConfideError, ValueError):
    """The data lack the declared public structure (a column, a type)."""

    failure = Failure.DATA


class LedgerError(ConfideError):
    """The ledger's store is missing, damaged or rolled back."""

    failure = Failure.LEDGER


class OutOfReachError(LedgerError):
    """The ledger's store cannot be reached or written to now (a server that is down, a full disk)."""

    failure = Failure.OUT_OF_REACH


class TermsError(LedgerError):
    """The ledger of that name exists with another budget."""

    failure = Failure.TERMS


class RefusedError(LedgerError):
    """Base of the ledger's refusals. Nothing was read and nothing was spent."""

    failure = Failure.REFUSED


class BudgetError(RefusedError):
    """The charge does not fit: ``spent``, ``asked`` and ``limit`` say by how much."""

    failure = Failure.BUDGET

    def __init__(
        self, fact: str, remedy: str = "", *, spent: object = None, asked: object = None, limit: object = None
    ) -> None:
        super().__init__(fact, remedy)
        self.spent = spent
        self.asked = asked
        self.limit = limit


class AssumptionError(RefusedError):
    """The guarantee rests on an assumption that the owner did not accept by name."""

    failure = Failure.ASSUMPTION


class AdjacencyError(RefusedError, ValueError):
    """A guarantee under one neighbouring relation was used where another is needed."""

    failure = Failure.ADJACENCY


class CalibrationError(ConfideError, ArithmeticError):
    """No noise level with the requested guarantee could be computed."""

    failure = Failure.CALIBRATION


class UncertifiedWarning(UserWarning):
    """A result carries no guarantee, or only a conditional one; its message says which."""
