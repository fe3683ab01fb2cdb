"""The README and the documentation are true: their code blocks run, in order, one folder a page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def environment(folder: Path) -> dict[str, str]:
    scripts = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": scripts + os.pathsep + os.environ["PATH"],
        "XDG_STATE_HOME": str(folder / "state"),
        "COLUMNS": "200",
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run(page, tmp_path):
    blocks = BLOCK.findall(page.read_text())
    assert blocks, f"{page.name} has no code to run"
    python = "\n".join(code for language, code in blocks if language == "python")
    shell = "\n".join(code for language, code in blocks if language == "sh")
    # Shell blocks come first where both are there and the Python reads what they wrote.
    scripts = [
        ["bash", "-euo", "pipefail", "-c", shell],
        [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", python],
    ]
    for command in scripts:
        if not command[-1].strip():
            continue
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{page.name}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def test_make_targets_that_the_readme_names_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(
        r"make ([a-z-]+)", (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    ):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_links_of_the_readme_lead_somewhere():
    for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / link).exists(), link


# Names of machine folders and registries must never be committed.
FORBIDDEN = re.compile(r"/(?:work|farm|root)/[A-Za-z.]|/tmp/[A-Za-z0-9_]+/|pypi\.org/simple")


def test_no_machine_path_is_committed():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: git ls-files failed")
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if (
            path.suffix in {".py", ".md", ".toml", ".yml", ".cff", ".json"}
            and path.exists()
            and path != Path(__file__)
        ):
            assert not FORBIDDEN.search(path.read_text()), name
