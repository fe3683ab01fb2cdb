"""Members of the families of the room: selection."""

from __future__ import annotations

from confide.audit.family.variant import Families

FAMILIES: Families = {}
