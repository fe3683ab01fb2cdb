"""What a part of benchmarks/service.py hands back, and the small statistics that several need."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Part:
    """Lines of the report, and the targets that were missed."""

    lines: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def say(self, *lines: str) -> None:
        """Add lines."""
        self.lines += lines

    def hold(self, what: str, met: bool) -> str:
        """Note a target; return the word for its cell."""
        if not met:
            self.missed.append(what)
        return f"{what}: {'met' if met else 'MISSED'}"


def quantiles(values: list[float], *shares: float) -> list[float]:
    """Return order statistics: the smallest value that at least such a share does not exceed."""
    held = sorted(values)
    return [held[max(0, -int(-share * len(held) // 1) - 1)] for share in shares]
