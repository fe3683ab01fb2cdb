"""Guarantees, adjacency, events and costs: the words in which every other room states its claim."""

from confide.privacy.accountants import (
    Accountant,
    BasicAccountant,
    PLDAccountant,
    RDPAccountant,
    ZCDPAccountant,
    pure_cost,
    zcdp_cost,
)
from confide.privacy.adjacency import Adjacency
from confide.privacy.calibration import noise_multiplier
from confide.privacy.composition import combine, compose, split
from confide.privacy.event import Event
from confide.privacy.exact import exact, round_down, round_up, show
from confide.privacy.filters import RDPFilter, ZCDPFilter
from confide.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_sigma
from confide.privacy.guarantee import (
    GAP_CONDITION,
    MEANINGS,
    NONPRIVATE,
    SEEDED,
    UNRECORDED,
    Guarantee,
    glossed,
    group,
)
from confide.privacy.losses import mechanisms
from confide.privacy.zcdp import zcdp_budget, zcdp_epsilon

__all__ = [
    "GAP_CONDITION",
    "MEANINGS",
    "NONPRIVATE",
    "SEEDED",
    "UNRECORDED",
    "Accountant",
    "Adjacency",
    "BasicAccountant",
    "Event",
    "Guarantee",
    "PLDAccountant",
    "RDPAccountant",
    "RDPFilter",
    "ZCDPAccountant",
    "ZCDPFilter",
    "combine",
    "compose",
    "exact",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "glossed",
    "group",
    "mechanisms",
    "noise_multiplier",
    "pure_cost",
    "round_down",
    "round_up",
    "show",
    "split",
    "zcdp_budget",
    "zcdp_cost",
    "zcdp_epsilon",
]
