"""The mechanisms whose calls `replay` records: what of a call must be equal on neighbours, what may move.

====================================  ============================================  ====================
mechanism                             must be equal                                 may move by
====================================  ============================================  ====================
gaussian_release, step_answer         grid, sensitivity, multiplier, name, shape    L2: its sensitivity
laplace_release                       the same, with epsilon                        L1: its sensitivity
weighted_choice                       size, but for a row that comes or goes        log-ratios: epsilon
Channel.draw                          channel, number of rows                       one row
Law.draw, ProposeTestRelease.draw     law, number of queries                        distance 1
SparseVector.above_many               threshold, epsilon, number of queries         1 a query
selection.draw, baseline              problem but for its rows, epsilon, relation   log-ratios: epsilon
objective.release                     plan                                          see `_perturbed`
discrete_laplace, rounded_gaussian,   scale and size: they read no data             nothing
discrete_gaussian, bernoulli_exp,
uniform_integers
====================================  ============================================  ====================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from confide.audit import coins
from confide.audit.registry import Claim
from confide.privacy import Adjacency

Arguments = dict[str, Any]
#: (private input here, there, what is equal, claim) -> (how far it moved, how far it may).
Distance = Callable[[Any, Any, Any, Claim], tuple[float, float]]

#: Supports up to which two laws of a selection are compared.
_SUPPORTS = 20_000
#: Relative error of laws in double precision.
_ERROR = 1e-9
#: Part of a budget of objective perturbation that is the output's, and normal numbers that are never met.
_PARTS, _FAR = 64, 37.0


@dataclass(frozen=True)
class Mechanism:
    """What is recorded of one mechanism.

    Parameters
    ----------
    where : str
        ``"module:function"`` or ``"module:Class.method"``.
    public : function (arguments) -> object
        What must be equal on neighbours, comparable by ``==``.
    private : function (arguments) -> object
        What may move.
    distance : Distance
    settle : function (arguments, output)
        Puts a replayed object in the state that the output implies.
    extended : function (arguments, output) -> output
        Makes a recorded answer one for so many rows as are asked for.
    answers : bool
        Whether the function returns another one, of a statistic, which is what is recorded.
    """

    where: str
    public: Callable[[Arguments], Any]
    private: Callable[[Arguments], Any]
    distance: Distance
    settle: Callable[[Arguments, Any], None] = lambda arguments, output: None
    extended: Callable[[Arguments, Any], Any] = lambda arguments, output: output
    answers: bool = False

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.where.rpartition(":")[2]


def _grid(a: Arguments) -> tuple[Any, ...]:
    s = a["statistic"]
    spread = a.get("l1_sensitivity")
    amount = Fraction(a["noise_multiplier"] if "noise_multiplier" in a else a["epsilon"])
    return s.name, s.step, s.sensitivity, s.value.shape, amount, None if spread is None else Fraction(spread)


def _value(a: Arguments) -> Any:
    return a["statistic"].value


def _gaps(here: Any, there: Any) -> list[int]:
    return [abs(int(x) - int(y)) for x, y in zip(here.ravel(), there.ravel(), strict=True)]


def _euclid(here: Any, there: Any, public: Any, claim: Claim) -> tuple[float, float]:
    return math.sqrt(sum(gap * gap for gap in _gaps(here, there))) * public[1], public[2]


def _manhattan(here: Any, there: Any, public: Any, claim: Claim) -> tuple[float, float]:
    allowed = public[2] * math.sqrt(max(1, here.size)) if public[5] is None else float(public[5])
    return sum(_gaps(here, there)) * public[1], allowed


def _nothing(here: Any, there: Any, public: Any, claim: Claim) -> tuple[float, float]:
    return 0.0, 0.0


def _logs(a: Arguments) -> tuple[list[float], int]:
    """Return logarithms of weights, and how many are drawn."""
    count = 1 if a["size"] is None else int(np.prod(a["size"]))
    if a["log_weights"] is not None:
        return [float(w) for w in a["log_weights"]], count
    return [-math.inf if w == 0 else math.log(w) for w in a["weights"]], count


def _extended(a: Arguments, output: Any) -> Any:
    return coins.extended(output, a["size"], len(_logs(a)[0]))


def _choice(here: Any, there: Any, public: Any, claim: Claim) -> tuple[float, float]:
    """Of some draws from one law, all may move; a draw for a row that comes tells of it alone."""
    (logs, count), (others, many) = here, there
    allowed = float(claim.epsilon) * (1 + _ERROR)
    more = int(claim.adjacency is Adjacency.ADD_REMOVE_ONE)
    if len(logs) != len(others) or abs(count - many) > more:
        return math.inf, allowed
    ratio = _ratio(*(_normal(np.array(side)) for side in (logs, others)))
    return ratio * max(count, many), allowed


def _normal(logs: Any) -> Any:
    top = logs.max()
    return logs - top - math.log(np.exp(logs - top).sum())


def _ratio(here: Any, there: Any) -> float:
    both = np.isfinite(here) & np.isfinite(there)
    if np.any(np.isfinite(here) != np.isfinite(there)):
        return math.inf
    return float(np.abs(here[both] - there[both]).max(initial=0.0))


def _rows(here: Any, there: Any, public: Any, claim: Claim) -> tuple[float, float]:
    return float((here != there).sum()), 1.0


def _answer(here: Any, there: Any, public: Any, claim: Claim) -> tuple[float, float]:
    (labels, k), (others, m) = here, there
    moved = np.abs(k - m).max(initial=0)
    turned = labels != others
    return (math.inf if np.any(k[turned] + m[turned]) else float(moved)), 1.0


def _queries(here: list[int], there: list[int], public: Any, claim: Claim) -> tuple[float, float]:
    return float(max((abs(x - y) for x, y in zip(here, there, strict=True)), default=0)), 1.0


def _close(a: Arguments, output: list[bool]) -> None:
    epoch = a["self"]
    epoch._open = all(output)
    epoch._answered += len(output)


def _problem(a: Arguments) -> tuple[Any, ...]:
    problem = a["problem"]
    how = a.get("mechanism", a.get("method"))
    adjacency = Adjacency.parse(a["adjacency"])
    n = None if adjacency is Adjacency.ADD_REMOVE_ONE else problem.n
    return (
        how, a["epsilon"], adjacency, a.get("top"), a["size"], n, problem.p, problem.size, problem.loss.name,
    )  # fmt: skip


def _selection(law: Callable[..., Any]) -> Distance:
    def distance(here: Any, there: Any, public: Any, claim: Claim) -> tuple[float, float]:
        how, epsilon, adjacency = public[:3]
        # Of a person with several rows, one row has a share of what all may move a law by.
        allowed = max(float(epsilon), float(claim.epsilon)) * (1 + _ERROR) + _ERROR
        if math.comb(public[6], public[7]) > _SUPPORTS:
            return 0.0, allowed
        laws = [law(problem, how, epsilon, adjacency) for problem in (here, there)]
        supports = sorted(set(laws[0]) | set(laws[1]))
        logs = [
            np.array([math.log(p) if (p := side.get(s, 0.0)) else -math.inf for s in supports])
            for side in laws
        ]
        return _ratio(*logs), allowed

    return distance


def _drawn(*a: Any) -> Any:
    from confide.selection import law

    return law(*a)


def _otherwise(*a: Any) -> Any:
    from confide.selection.baselines import baseline_law

    return baseline_law(*a)


def _perturbed(here: Any, there: Any, plan: Any, claim: Claim) -> tuple[float, float]:
    """Objective perturbation at one minimiser: the noise that leads there must be as likely on both.

    For a minimiser theta inside the ball, b = -gradient(theta) is the noise that leads to it. Both tables'
    solvers are sent their own b. Each must come within `Plan.distance` of theta, and their statistics may
    differ by `Plan.output_sensitivity`; for pure privacy the densities of the two b, times the determinants,
    may differ by what the output's noise leaves of epsilon, and for Gaussian noise their distance by that of
    the gradients of two rows, or of all rows of a person. What the plan's noise costs is summed anew
    (`_cost`). Returned is the worst share of what is allowed.
    """
    from confide.training.objective import gathered, solve
    from confide.training.objective_solver import Objective, evaluate, gradient_of

    rng, worst, size, count = np.random.default_rng(0), _cost(plan), plan.shape.size, plan.shape.rows_per_unit
    worst = max(worst, float(plan.epsilon / claim.epsilon) / (1 + _ERROR))
    near = math.sqrt(size) * plan.output_step + plan.distance
    for share in (0.1, 0.5, 0.9):
        theta = rng.normal(size=size)
        theta *= share * plan.radius / np.linalg.norm(theta)
        noise, volumes, told = [], [], []
        for rows in (here, there):
            cells, y = gathered(rows, plan)
            longest = float((cells * cells).sum(axis=1).max(initial=0.0))
            worst = max(worst, longest / (plan.shape.norm_squared * (1 + _ERROR)))
            still = Objective(
                plan.loss, plan.ridge, plan.radius, plan.shape.norm_squared, np.zeros(size), plan.noise_bound
            )
            b = -gradient_of(cells, evaluate(cells, y, theta, still)[1], theta, still)
            second = plan.loss.derivatives(y, cells @ theta)[2]
            hessian = cells.T @ (cells * second[:, None]) + plan.ridge * np.eye(size)
            volumes.append(np.linalg.slogdet(hessian)[1])
            solver = solve(rows, plan)
            next(solver)
            told.append(solver.send(b))
            noise.append(b)
            off = float(np.linalg.norm(told[-1].value * told[-1].step - theta))
            worst = max(worst, off / near)
        moved = (told[0].value - told[1].value).astype(float) * told[0].step
        norm = 1 if plan.pure else 2
        worst = max(worst, float(np.linalg.norm(moved, norm)) / plan.output_sensitivity)
        if plan.pure:
            likelier = abs(np.abs(noise[0]).max() - np.abs(noise[1]).max()) / plan.scale + abs(
                volumes[0] - volumes[1]
            )
            worst = max(worst, float(likelier) / float(plan.epsilon - count * plan.output))
        else:
            apart = 2 * count * plan.loss.slope * math.sqrt(plan.shape.norm_squared)
            worst = max(worst, float(np.linalg.norm(noise[0] - noise[1])) / (apart * (1 + _ERROR)))
    return worst, 1.0


def _cost(plan: Any) -> float:
    """Return the share of its epsilon, or of its delta, that a plan of objective perturbation spends.

    The proof's sum (`confide.training.objective`), computed here from the noise, the ridge and the loss: the
    determinant, the noise of the objective at the corners of what rows may change, the noise of the output;
    then all rows of a person. Slopes and curvatures of the loss are looked up on a grid.
    """
    from scipy.special import ndtr

    def curve(epsilon: float, sigma: float) -> float:
        """Return delta of Gaussian noise at sensitivity 1 (Balle & Wang 2018, theorem 8)."""
        part = float(ndtr(-epsilon * sigma - 0.5 / sigma)) if epsilon * sigma < _FAR else 0.0
        return float(ndtr(0.5 / sigma - epsilon * sigma)) - (math.exp(epsilon) * part if part else 0.0)

    loss, shape, count = plan.loss, plan.shape, plan.shape.rows_per_unit
    z = np.linspace(-1, 1, 4001) * plan.radius * math.sqrt(shape.norm_squared)
    ys = (-1.0, 1.0) if loss.labels else (-1.0, -0.3, 0.0, 1.0)
    met = [np.abs(part).max() for y in ys for part in loss.derivatives(np.full(z.size, y), z)[1:]]
    shape_of_loss = max(max(met[::2]) / loss.slope, max(met[1::2]) / loss.curvature) / (1 + _ERROR)
    ends, each = 2.0 if shape.rows_are_public else 1.0, float(plan.epsilon) / count
    paid = math.log1p(loss.curvature * shape.norm_squared / plan.ridge)
    if plan.pure:
        paid += ends * loss.slope / plan.scale + float(plan.output)
        return max(shape_of_loss, paid / each / (1 + _ERROR))
    length, output = ends * loss.slope * math.sqrt(shape.norm_squared), each / _PARTS
    delta = 2 * ends * curve(each - paid - output, plan.scale / length) + curve(output, plan.output)
    delta *= math.fsum(math.exp(i * each) for i in range(count))
    return max(shape_of_loss, delta / float(plan.delta) / (1 + _ERROR))


def _plain(where: str, *names: str) -> Mechanism:
    """Return a mechanism that reads no data: all its parameters are public."""
    return Mechanism(where, lambda a: tuple(a[name] for name in names), lambda a: None, _nothing)


def _statistic(where: str, distance: Distance, **how: Any) -> Mechanism:
    return Mechanism(where, _grid, _value, distance, **how)


_ROOM = "confide.mechanisms"
MECHANISMS = (
    _statistic(f"{_ROOM}.grid:gaussian_release", _euclid),
    _statistic(f"{_ROOM}.grid:laplace_release", _manhattan),
    _statistic("confide.training.sgd.release:step_answer", _euclid, answers=True),
    Mechanism(f"{_ROOM}.choice:weighted_choice", lambda a: None, _logs, _choice, extended=_extended),
    Mechanism(
        "confide.training.labels.channel:Channel.draw", lambda a: (a["self"], np.size(a["codes"])),
        lambda a: np.array(a["codes"], dtype=np.int64), _rows,
    ),
    *(
        Mechanism(
            where, lambda a: (repr(a["self"]), np.shape(a["labels"])),
            lambda a: tuple(np.atleast_1d(a[name]).astype(np.int64) for name in ("labels", "k")), _answer,
        )
        for where in ("confide.prediction.laws:Law.draw", "confide.prediction.ptr:ProposeTestRelease.draw")
    ),
    Mechanism(
        f"{_ROOM}.above_threshold:SparseVector.above_many",
        lambda a: (a["self"].threshold, a["self"].epsilon, len(a["queries"])),
        lambda a: [int(q) for q in a["queries"]], _queries, settle=_close,
    ),
    Mechanism("confide.selection.draws:draw", _problem, lambda a: a["problem"], _selection(_drawn)),
    Mechanism(
        "confide.selection.baselines.front:baseline", _problem, lambda a: a["problem"], _selection(_otherwise)
    ),
    Mechanism("confide.training.objective:release", lambda a: a["plan"], lambda a: a["rows"], _perturbed),
    _plain(f"{_ROOM}.discrete:discrete_laplace", "scale", "size"),
    _plain(f"{_ROOM}.discrete:discrete_gaussian", "sigma", "size"),
    _plain(f"{_ROOM}.discrete:bernoulli_exp", "gamma", "size"),
    _plain(f"{_ROOM}.gaussian:rounded_gaussian", "sigma", "step", "size"),
    _plain(f"{_ROOM}.choice:uniform_integers", "total", "count"),
)  # fmt: skip
