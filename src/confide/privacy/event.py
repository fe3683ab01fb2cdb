"""What was run: a frozen, serialisable description, apart from what it costs.

Ledger rows outlive releases, so the meaning of a mechanism's name and parameters never changes; a new
meaning gets a new name. Parameters are plain values (str, int, float, bool, None). The cost of an event
is computed by `confide.privacy.costs`, which has one handler a mechanism.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confide.errors import ParameterError

Plain = str | int | float | bool | None

#: Name of an event that stands for the sequence of its parts.
COMPOSED = "composed"
#: Name of an event that stands for its parts as seen by tables which differ in `size` units.
GROUP = "group"
#: Name of an event that stands for the best of a random number of runs; its parts are what a run does to
#: disjoint units (`confide.privacy.random_stopping`).
RANDOM_STOPPING = "random_stopping"


@dataclass(frozen=True)
class Event:
    """A mechanism with its public parameters, run `count` times (adaptively).

    Attributes
    ----------
    mechanism : str
        Registered name, e.g. ``"gaussian"``; ``"composed"`` for a sequence.
    parameters : tuple of (str, plain value)
        Sorted by name.
    count : int
        How often, >= 0. Zero is the empty event and costs nothing.
    parts : tuple of Event
        Of a composed event, in the order they were run; of a group event, what the group faces; of a
        random-stopping event, what one run does to disjoint units.
    """

    mechanism: str
    parameters: tuple[tuple[str, Plain], ...] = ()
    count: int = 1
    parts: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 0:
            raise ParameterError(f"The 'count' of an event is {self.count!r}.", "Pass an integer >= 0.")
        if self.parts and self.mechanism not in (COMPOSED, GROUP, RANDOM_STOPPING):
            raise ParameterError(
                f"The event {self.mechanism!r} has parts.",
                "Only composed, group and random-stopping events have: use Event.sequence or Event.group.",
            )
        for name, value in self.parameters:
            if not (value is None or isinstance(value, str | int | float | bool)):
                raise ParameterError(
                    f"The event parameter {name!r} is a {type(value).__name__}.", "Pass a plain value."
                )

    @classmethod
    def of(cls, mechanism: str, *, count: int = 1, **parameters: Plain) -> Event:
        """Describe `count` runs of one mechanism."""
        return cls(mechanism, tuple(sorted(parameters.items())), count)

    @classmethod
    def sequence(cls, events: Iterable[Event], *, count: int = 1) -> Event:
        """Describe the adaptive composition of `events`, repeated `count` times."""
        return cls(COMPOSED, (), count, tuple(events))

    def group(self, size: int) -> Event:
        """Describe this event as it looks to tables that differ in `size` units."""
        return Event(GROUP, (("size", size),), 1, (self,))

    def times(self, count: int) -> Event:
        """Describe `count` repetitions of this event."""
        return Event.sequence((self,), count=count)

    def __getitem__(self, name: str) -> Plain:
        for key, value in self.parameters:
            if key == name:
                return value
        raise KeyError(name)

    def get(self, name: str, default: Plain = None) -> Plain:
        """Return the parameter `name`, or `default`."""
        return dict(self.parameters).get(name, default)

    def to_dict(self) -> dict[str, Any]:
        """Return plain nested dictionaries, fit for JSON."""
        result: dict[str, Any] = {"mechanism": self.mechanism, "count": self.count}
        if self.parameters:
            result["parameters"] = dict(self.parameters)
        if self.parts:
            result["parts"] = [part.to_dict() for part in self.parts]
        return result

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Event:
        """Rebuild an event from `to_dict`."""
        return cls(
            data["mechanism"],
            tuple(sorted(data.get("parameters", {}).items())),
            data.get("count", 1),
            tuple(cls.from_dict(part) for part in data.get("parts", ())),
        )

    def to_json(self) -> str:
        """Return the canonical JSON text (sorted keys, no spaces): equal events, equal text."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Event:
        """Rebuild an event from `to_json`."""
        return cls.from_dict(json.loads(text))
