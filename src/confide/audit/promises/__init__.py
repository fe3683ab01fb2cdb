"""The claims, a module a room: each entry says how one promise of the room is run and on which neighbours.

All are registered with the first, in this order: whoever imports one alone finds the same registry.
"""

from importlib import import_module

#: Modules of this package, from the ground up.
ROOMS = ("mechanisms", "selection", "labels", "training", "prediction", "serving", "pipeline", "ledger")

for _room in ROOMS:
    import_module(f"{__name__}.{_room}")
