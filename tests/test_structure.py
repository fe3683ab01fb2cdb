"""The house keeps its floors: imports only point down, files stay short, importing stays cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "confide"
# Top to bottom; rooms on one line do not know each other (docs/house.md).
FLOORS = [
    {"__main__", "__init__"},
    {"cli"},
    {"service"},
    {"audit"},
    {"report"},
    {"estimate", "pipeline", "tune"},
    {"selection", "training", "prediction"},
    {"ledger"},
    {"mechanisms"},
    {"schema"},
    {"privacy"},
    {"errors", "data"},
    {"lazy"},
]
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Rooms that a file imports anywhere, inside functions and TYPE_CHECKING blocks too."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno} uses a relative import"
            names = [node.module or ""]
            if node.module == "confide":
                names = [f"confide.{alias.name}" for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("confide.")}
    return rooms


def test_every_room_has_a_floor():
    assert {room_of(path) for path in FILES} <= set(FLOOR)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path):
    room = room_of(path)
    for other in imported_rooms(path):
        if other == room or room in ("__init__", "__main__"):
            continue
        assert FLOOR[other] > FLOOR[room], f"{room} imports {other}, which is not below it"


@pytest.mark.parametrize("path", [*FILES, *sorted((SOURCE.parents[1] / "tests").rglob("*.py")),
                                  *(path for path in sorted((SOURCE.parents[1] / "benchmarks").rglob("*.py"))
                                    if not any(part.startswith(".") for part in path.relative_to(SOURCE.parents[1]).parts))],
                         ids=lambda path: str(path.relative_to(SOURCE.parents[1])))  # fmt: skip
def test_no_file_passes_500_lines(path):
    assert len(path.read_text().splitlines()) <= 500


HEAVY = ["numba", "sklearn", "scipy.stats", "dp_accounting", "sqlalchemy", "matplotlib", "pyarrow", "pandas", "polars",
         "fastapi"]  # fmt: skip


@pytest.mark.parametrize("statement", ["import confide", "import confide.cli.app"])
def test_heavy_libraries_are_imported_late(statement):
    code = f"import sys; {statement}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_resolve():
    import confide

    for name in confide.__all__:
        assert getattr(confide, name) is not None
    with pytest.raises(AttributeError, match="nothing_here"):
        confide.nothing_here  # noqa: B018
