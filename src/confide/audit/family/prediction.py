"""Members of the families of the room: prediction."""

from __future__ import annotations

from confide.audit.family.variant import Families

FAMILIES: Families = {}
