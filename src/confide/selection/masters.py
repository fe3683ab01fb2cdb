"""Solvers of the master problem: which support is lowest under the cuts, outside the excluded ones.

    min theta   over   z in {0, 1}^p,  sum z = size,  theta >= C_k - w_k'z for every cut,
                       sum of z over an excluded support <= size - 1,  sum of z over a group = number

Numbers come in units of the search (`outer`), so that tolerances mean the same for every problem. Every
answer is a proposal: supports are scored, and bounds proved, elsewhere.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from confide.errors import ParameterError, UnsupportedError

Floats = npt.NDArray[np.float64]
Supports = npt.NDArray[np.int64]

#: Absolute tolerance of a row and of an integer, the least that both solvers take.
TOLERANCE = 1e-9
#: Supports after which a round ends: each brings a cut.
_ENOUGH = 3


@dataclass(frozen=True)
class Relaxed:
    """Solution of the continuous relaxation: z [p], theta, and the multipliers of the cuts [K]."""

    z: Floats
    value: float
    shares: Floats


@dataclass(frozen=True)
class Found:
    """What a round found: supports below the cutoff, the solver's bound, and whether it claims to be done."""

    supports: list[tuple[int, ...]]
    bound: float
    done: bool


class Master(Protocol):
    """A master problem that grows; `group` (columns, number) restricts it to one level of mistakes."""

    def add(self, constants: Floats, weights: Floats) -> None:
        """Add cuts, [K] and [K, p]."""
        ...

    def exclude(self, supports: Iterable[tuple[int, ...]]) -> None:
        """Exclude supports."""
        ...

    def relax(self) -> Relaxed:
        """Solve the continuous relaxation."""
        ...

    def solve(self, cutoff: float, seconds: float) -> Found:
        """Look for supports with theta below the cutoff, for so many seconds."""
        ...


#: Makes a master from p, size and group.
Maker = Callable[[int, int, tuple[Supports, int] | None], Master]


def maker_of(solver: str) -> Maker:
    """Return what makes the masters of `solver`, "mip" or "gurobi".

    Raises
    ------
    UnsupportedError
        The solver cannot be loaded or has no licence: before anything is computed.
    """
    if solver == "mip":
        return HighsMaster
    if solver == "gurobi":
        return gurobi_maker()
    raise ParameterError(f"The 'solver' parameter is {solver!r:.80}.", "Pass 'mip' or 'gurobi'.")


class HighsMaster:
    """The master on HiGHS: one model, rows appended; HiGHS has no lazy rows, so each round is a new run.

    Parameters
    ----------
    p, size : int
    group : (int64 array, int), optional
    """

    def __init__(self, p: int, size: int, group: tuple[Supports, int] | None = None) -> None:
        import highspy

        class Quiet(highspy.Highs):
            """HiGHS prints its name in the constructor, at the first call that is not an option."""

            def enableCallbacks(self) -> None:
                self.setOptionValue("output_flag", False)
                super().enableCallbacks()

        self.p, self.size = p, size
        self._kinds = highspy.HighsVarType
        self._status = highspy.HighsModelStatus
        h = self._h = Quiet()
        for name, value in (
            ("parallel", "off"),
            ("primal_feasibility_tolerance", TOLERANCE),
            ("dual_feasibility_tolerance", TOLERANCE),
            ("mip_feasibility_tolerance", TOLERANCE),
            ("mip_rel_gap", 0.0),
            ("mip_abs_gap", 0.0),
        ):
            h.setOptionValue(name, value)
        for _ in range(p):
            h.addVar(0.0, 1.0)
        h.addVar(-math.inf, math.inf)
        h.changeColCost(p, 1.0)
        self._row(size, size, np.arange(p), np.ones(p))
        if group is not None:
            self._row(group[1], group[1], group[0], np.ones(group[0].size))
        self._cuts: list[int] = []
        self._integer = False
        self._stop = False
        self._seen: list[tuple[int, ...]] = []
        h.cbMipInterrupt += self._on_interrupt
        h.cbMipSolution += self._on_solution

    def add(self, constants: Floats, weights: Floats) -> None:
        """Add cuts, [K] and [K, p]."""
        for constant, row in zip(constants, weights, strict=True):
            used = np.flatnonzero(row)
            self._cuts.append(self._h.getNumRow())
            self._row(constant, math.inf, np.append(used, self.p), np.append(row[used], 1.0))

    def exclude(self, supports: Iterable[tuple[int, ...]]) -> None:
        """Exclude supports."""
        for support in supports:
            self._row(-math.inf, self.size - 1, np.array(support), np.ones(self.size))

    def relax(self) -> Relaxed:
        """Solve the continuous relaxation; the basis of the last one is the start."""
        self._set_kind(False)
        self._h.run()
        solution = self._h.getSolution()
        z = np.clip(np.array(solution.col_value[: self.p]), 0.0, 1.0)
        duals = np.array(solution.row_dual)[self._cuts]
        return Relaxed(z, float(self._h.getInfo().objective_function_value), np.maximum(duals, 0.0))

    def solve(self, cutoff: float, seconds: float) -> Found:
        """Look for supports with theta below the cutoff, for so many seconds."""
        h = self._h
        self._set_kind(True)
        h.changeColBounds(self.p, -math.inf, cutoff)
        h.setOptionValue("time_limit", h.getRunTime() + seconds)  # its clock runs on from run to run
        self._seen = []
        self._run()
        status = h.getModelStatus()
        info = h.getInfo()
        optimal = status == self._status.kOptimal
        none = status in (self._status.kInfeasible, self._status.kUnboundedOrInfeasible)
        if optimal:
            self._note(h.getSolution().col_value)
        bound = cutoff if none else float(info.mip_dual_bound)
        return Found(list(dict.fromkeys(self._seen)), bound, optimal or none)

    def _row(self, low: float, high: float, columns: npt.ArrayLike, values: Floats) -> None:
        index = np.asarray(columns, dtype=np.int32)
        self._h.addRow(low, high, index.size, index, values.astype(np.float64))

    def _set_kind(self, integer: bool) -> None:
        if integer != self._integer:
            kind = self._kinds.kInteger if integer else self._kinds.kContinuous
            self._h.changeColsIntegrality(
                self.p, np.arange(self.p, dtype=np.int32), np.full(self.p, int(kind), dtype=np.uint8)
            )
            self._integer = integer

    def _run(self) -> None:
        """Run in a thread, so that an interrupt of the user ends the run and then travels on."""
        self._stop = False
        thread = threading.Thread(target=self._h.run, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(0.05)
        finally:
            self._stop = True
            while thread.is_alive():
                thread.join(0.05)

    def _on_interrupt(self, event: Any) -> None:
        # Written each time: HiGHS keeps the wish of the last run.
        event.data_in.user_interrupt = self._stop or len(set(self._seen)) >= _ENOUGH

    def _on_solution(self, event: Any) -> None:
        self._note(event.data_out.mip_solution)

    def _note(self, values: Any) -> None:
        z = np.asarray(values)[: self.p]
        support = np.flatnonzero(z > 0.5)
        if support.size == self.size:
            self._seen.append(tuple(support.tolist()))


def gurobi_maker() -> Maker:
    """Return what makes masters on Gurobi, once the package is there and its licence was tried.

    Raises
    ------
    UnsupportedError
    """
    try:
        import gurobipy  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UnsupportedError(
            "The solver 'gurobi' needs the package gurobipy, which is not installed.",
            "Pass solver='mip' or 'search', which need nothing, or install gurobipy and its licence.",
        ) from None
    try:
        environment = gurobipy.Env(empty=True)
        environment.setParam("OutputFlag", 0)
        environment.start()
    except gurobipy.GurobiError as error:
        raise UnsupportedError(
            f"The solver 'gurobi' did not start: {error!s:.200}.",
            "Renew its licence, or pass solver='mip' or 'search', which need none.",
        ) from None
    return lambda p, size, group: GurobiMaster(gurobipy, environment, p, size, group)


class GurobiMaster:
    """The master on Gurobi: the same rounds as on HiGHS.

    Parameters
    ----------
    module, environment : object
        gurobipy and a started environment of it.
    p, size : int
    group : (int64 array, int), optional
    """

    def __init__(
        self, module: Any, environment: Any, p: int, size: int, group: tuple[Supports, int] | None = None
    ) -> None:
        self.p, self.size, self._g = p, size, module
        m = self._m = module.Model(env=environment)
        for name, value in (
            ("FeasibilityTol", TOLERANCE),
            ("IntFeasTol", TOLERANCE),
            ("OptimalityTol", TOLERANCE),
            ("MIPGap", 0.0),
            ("MIPGapAbs", 0.0),
        ):
            m.setParam(name, value)
        kind = module.GRB
        self._z = [m.addVar(lb=0.0, ub=1.0, vtype=kind.CONTINUOUS) for _ in range(p)]
        self._theta = m.addVar(lb=-kind.INFINITY, obj=1.0)
        self._row(range(p), np.ones(p), kind.EQUAL, size)
        if group is not None:
            self._row(group[0], np.ones(group[0].size), kind.EQUAL, group[1])
        self._cuts: list[Any] = []

    def add(self, constants: Floats, weights: Floats) -> None:
        """Add cuts, [K] and [K, p]."""
        for constant, row in zip(constants, weights, strict=True):
            used = np.flatnonzero(row)
            expression = self._g.LinExpr(
                [*row[used].tolist(), 1.0], [*(self._z[j] for j in used), self._theta]
            )
            self._cuts.append(self._m.addLConstr(expression, self._g.GRB.GREATER_EQUAL, float(constant)))

    def exclude(self, supports: Iterable[tuple[int, ...]]) -> None:
        """Exclude supports."""
        for support in supports:
            self._row(support, np.ones(self.size), self._g.GRB.LESS_EQUAL, self.size - 1)

    def relax(self) -> Relaxed:
        """Solve the continuous relaxation."""
        self._set_kind(self._g.GRB.CONTINUOUS)
        self._m.optimize()
        z = np.clip(np.array([v.X for v in self._z]), 0.0, 1.0)
        shares = np.maximum(np.array([row.Pi for row in self._cuts]), 0.0)
        return Relaxed(z, float(self._m.ObjVal), shares)

    def solve(self, cutoff: float, seconds: float) -> Found:
        """Look for supports with theta below the cutoff, for so many seconds."""
        m, kind = self._m, self._g.GRB
        self._set_kind(kind.BINARY)
        self._theta.UB = cutoff
        m.setParam("TimeLimit", seconds)
        m.optimize()
        if m.Status == kind.INTERRUPTED:
            raise KeyboardInterrupt
        if m.Status in (kind.INFEASIBLE, kind.INF_OR_UNBD):
            return Found([], cutoff, True)
        supports = []
        for i in range(m.SolCount):
            m.setParam("SolutionNumber", i)
            chosen = tuple(j for j, v in enumerate(self._z) if v.Xn > 0.5)
            if len(chosen) == self.size:
                supports.append(chosen)
        return Found(supports, float(m.ObjBound), m.Status == kind.OPTIMAL)

    def _row(self, columns: Iterable[int], values: Floats, sense: Any, right: float) -> None:
        expression = self._g.LinExpr(values.tolist(), [self._z[j] for j in columns])
        self._m.addLConstr(expression, sense, float(right))

    def _set_kind(self, kind: Any) -> None:
        for v in self._z:
            v.VType = kind
