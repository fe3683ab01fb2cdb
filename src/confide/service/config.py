"""What the owner declares about a service: public, fixed while it runs."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from confide.errors import ParameterError
from confide.prediction.releases import SPARSE_VECTOR
from confide.privacy import exact

Exact = Annotated[Fraction, BeforeValidator(lambda value, info: exact(value, str(info.field_name)))]


class ServiceConfig(BaseModel):
    """Public settings of a service.

    Parameters
    ----------
    epsilon, delta : amount
        Of one answer; of one epoch for "sparse_vector".
    release : str
        As in `confide.prediction.release_of`, or "sparse_vector".
    slack : amount
        Delta that the exact composition of a *block* may spend; 0 adds epsilons, answer by answer. Refused on
        a ledger of zCDP, which spends none.
    block : int
        Answers that the total pays for together. A block of Q answers costs
        ``compose(epsilon, Q, slack)`` and is paid when its first answer is drawn. Fixed before it begins, so
        that blocks add up whoever stops when (a running compose(Q) would be no filter beside other spending
        that depends on answers).
    analyst_block : int
        As `block`, of each analyst's own account; a block of one adds epsilons.
    epochs : int
        Of "sparse_vector": how many one request may open. Rows past the end of the last come back unanswered.
    then : str
        Of "sparse_vector": "response" answers a row that was found unstable by that release, paid besides its
        epoch. Empty: such a row has no answer.
    then_epsilon : amount
        Of one such answer.
    rows : int
        Most rows of a request.
    rate, burst : float, int
        Of each analyst: requests a second in the long run, and at once; over all `workers`.
    schedule_ms, row_ms : float
        The public schedule of answers: the grid, and the time granted to each row.
    workers : int
        Processes that serve one store.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    epsilon: Exact
    delta: Exact = Fraction(0)
    release: str = "response"
    slack: Exact = Fraction(0)
    block: int = Field(1, ge=1, le=10**7)
    analyst_block: int = Field(1, ge=1, le=10**7)
    epochs: int = Field(1, ge=1, le=1000)
    then: Literal["", "response"] = ""
    then_epsilon: Exact = Fraction(0)
    rows: int = Field(1000, ge=1, le=100_000)
    rate: float = Field(100.0, gt=0, allow_inf_nan=False)
    burst: int = Field(200, ge=1)
    schedule_ms: float = Field(100.0, ge=0, allow_inf_nan=False)
    row_ms: float = Field(0.25, ge=0, allow_inf_nan=False)
    workers: int = Field(1, ge=1, le=1024)

    @model_validator(mode="after")
    def _agree(self) -> ServiceConfig:
        if self.slack >= 1 or self.delta >= 1:
            raise ValueError("delta and slack must be below 1")
        if self.slack and self.block == 1 and self.analyst_block == 1:
            raise ValueError("slack needs a block of several answers to be spent on")
        if self.stable and (self.slack or self.block > 1 or self.analyst_block > 1):
            raise ValueError("epochs are paid one by one: leave slack and blocks out")
        if self.then and not self.stable:
            raise ValueError("'then' is of sparse_vector alone: any other release answers every row")
        if bool(self.then) != bool(self.then_epsilon):
            raise ValueError(
                "'then' and 'then_epsilon' go together: the release of unstable rows and its epsilon"
            )
        return self

    @classmethod
    def of(cls, **values: Any) -> ServiceConfig:
        """Return checked settings.

        Raises
        ------
        ParameterError
            Names the first setting at fault.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            cause = first.get("ctx", {}).get("error")
            if isinstance(cause, ParameterError):
                raise cause from None
            name = ".".join(map(str, first["loc"]))
            if not name:
                raise ParameterError(
                    f"The settings of the service do not agree: {cause}.", "See `confide serve --help`."
                ) from None
            raise ParameterError(
                f"The {name!r} of the service: {first['msg']}.", "See `confide serve --help`."
            ) from None

    @property
    def stable(self) -> bool:
        """Whether answers come by epochs of the sparse vector."""
        return self.release == SPARSE_VECTOR

    @property
    def released(self) -> str:
        """How rows are answered, in words."""
        return f"{self.release}, then {self.then}" if self.then else self.release
