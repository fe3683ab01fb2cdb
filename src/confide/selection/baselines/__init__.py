"""What others select columns with, for comparison, each labelled for what it guarantees.

=================  ==========================  ==============  ===========================================
name               settings                    label           source
=================  ==========================  ==============  ===========================================
markov_chain       `MarkovChain`               approximate     Roy & Tewari 2024 (arXiv 2310.07852)
lasso_votes        `LassoVotes`                pure            Kifer, Smith & Thakurta 2012, section 4.1:
                                                               subsample and aggregate
screening          `Screening`                 pure            marginal screening, exponential mechanism
enumeration        `Enumeration`               pure            McSherry & Talwar 2007, all supports listed
best_subset        `BestSubset`                non-private     the best support itself: a reference
=================  ==========================  ==============  ===========================================

`baseline` draws, `baseline_law` gives the exact law where supports can be enumerated. These are no front
doors: they know no ledger, and every guarantee says ``"unrecorded"``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confide.lazy import lazy

if TYPE_CHECKING:
    from confide.selection.baselines.chain import MarkovChain as MarkovChain
    from confide.selection.baselines.front import BaselineResult as BaselineResult
    from confide.selection.baselines.front import baseline as baseline
    from confide.selection.baselines.front import baseline_law as baseline_law
    from confide.selection.baselines.reference import BestSubset as BestSubset
    from confide.selection.baselines.reference import Enumeration as Enumeration
    from confide.selection.baselines.screening import Screening as Screening
    from confide.selection.baselines.votes import LassoVotes as LassoVotes

_WHERE = {
    "BaselineResult": "front",
    "BestSubset": "reference",
    "Enumeration": "reference",
    "LassoVotes": "votes",
    "MarkovChain": "chain",
    "Screening": "screening",
    "baseline": "front",
    "baseline_law": "front",
}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


__getattr__, __dir__ = lazy(__name__, _WHERE)
