"""Members of the families of the room: training."""

from __future__ import annotations

from confide.audit.family.variant import Families

FAMILIES: Families = {}
