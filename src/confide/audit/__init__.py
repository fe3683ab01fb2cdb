"""Attacks on our own guarantees: ``confide audit`` tries to break each claim of `registry`.

=============  =========================================================================================
layer          what it does
=============  =========================================================================================
`exact`        enumerates outputs on searched neighbours: privacy profiles in rationals and intervals
`blackbox`     learns to tell outputs of neighbours apart: a lower bound on epsilon, with confidence
`replay`       records a run's mechanism calls on one table and replays its answers on the other
`sides`        compares exceptions, messages, warnings, charges, models and last bits on neighbours
=============  =========================================================================================

`museum` holds known-bad variants, each of which a layer must catch. `run` plans and resumes; its `LAYERS` are
all of them, and `legend` says what each tries. `standing` says how a claim stands; `page` and `guarantees`
write it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.audit.finding import Finding as Finding
    from confide.audit.finding import Verdict as Verdict
    from confide.audit.registry import Claim as Claim
    from confide.audit.registry import Kind as Kind
    from confide.audit.registry import Pair as Pair
    from confide.audit.registry import claims as claims
    from confide.audit.registry import register as register
    from confide.audit.run import Audit as Audit
    from confide.audit.run import audit as audit

_WHERE = {
    "Audit": "run",
    "Claim": "registry",
    "Finding": "finding",
    "Kind": "registry",
    "Pair": "registry",
    "Verdict": "finding",
    "audit": "run",
    "claims": "registry",
    "register": "registry",
}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


__getattr__, __dir__ = lazy(__name__, _WHERE)
