"""Where each key of a TOML text stands: the line numbers that `tomllib` does not give."""

from __future__ import annotations

import bisect
import re
import tomllib

Path = tuple[str | int, ...]

_SCALAR_END = re.compile(r"[,\]}#\n]")


def key_lines(text: str) -> dict[Path, int]:
    """Return the line (from 1) of every key, table header and array element of a valid TOML text.

    Parameters
    ----------
    text : str
        TOML that `tomllib` has accepted; this scanner trusts the syntax and only keeps track of places.

    Returns
    -------
    dict
        From the path of keys (``("columns", "wage", "lower")``; whole numbers count array elements) to the
        line of its first mention. Quoted, dotted and inline keys are all resolved.
    """
    return _Scanner(text).run()


def nearest_line(lines: dict[Path, int], path: Path) -> int | None:
    """Return the line of `path`, or of the closest key above it that the text mentions."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.newlines = [i for i, char in enumerate(text) if char == "\n"]
        self.lines: dict[Path, int] = {}
        self.tables: dict[Path, int] = {}

    def run(self) -> dict[Path, int]:
        prefix: Path = ()
        while True:
            self.skip_blank()
            if self.at >= len(self.text):
                return self.lines
            start = self.at
            if self.text[self.at] == "[":
                double = self.text.startswith("[[", self.at)
                self.at += 2 if double else 1
                prefix = self.key_until("]")
                self.at += 2 if double else 1
                if double:
                    count = self.tables.get(prefix, 0)
                    self.tables[prefix] = count + 1
                    prefix = (*prefix, count)
                self.note(prefix, start)
            else:
                self.pair(prefix)

    def note(self, path: Path, at: int) -> None:
        line = bisect.bisect_left(self.newlines, at) + 1
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], line)

    def pair(self, prefix: Path) -> None:
        start = self.at
        path = prefix + self.key_until("=")
        self.at += 1
        self.note(path, start)
        self.value(path)

    def key_until(self, end: str) -> Path:
        """Read a key up to `end`, outside quotes, and let `tomllib` itself resolve its spelling."""
        start = self.at
        while self.text[self.at] != end:
            if self.text[self.at] in "\"'":
                self.string()
            else:
                self.at += 1
        node = tomllib.loads(f"{self.text[start : self.at].strip()} = 0")
        path: Path = ()
        while isinstance(node, dict):
            ((name, node),) = node.items()
            path = (*path, name)
        return path

    def value(self, path: Path) -> None:
        self.skip_blank()
        char = self.text[self.at]
        if char in "\"'":
            self.string()
        elif char == "[":
            self.items(path, "]", keyed=False)
        elif char == "{":
            self.items(path, "}", keyed=True)
        else:
            end = _SCALAR_END.search(self.text, self.at)
            self.at = end.start() if end else len(self.text)

    def items(self, path: Path, end: str, *, keyed: bool) -> None:
        self.at += 1
        count = 0
        while True:
            self.skip_blank()
            if self.text[self.at] == end:
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
            elif keyed:
                self.pair(path)
            else:
                self.note((*path, count), self.at)
                self.value((*path, count))
                count += 1

    def string(self) -> None:
        quote = self.text[self.at]
        if self.text.startswith(quote * 3, self.at):
            self.at += 3
            while not self.text.startswith(quote * 3, self.at):
                self.at += 2 if quote == '"' and self.text[self.at] == "\\" else 1
            while self.at < len(self.text) and self.text[self.at] == quote:
                self.at += 1  # up to two quotes may stand before the closing three
            return
        self.at += 1
        while self.text[self.at] != quote:
            self.at += 2 if quote == '"' and self.text[self.at] == "\\" else 1
        self.at += 1

    def skip_blank(self) -> None:
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text[self.at] in " \t\r\n":
                self.at += 1
            else:
                return
