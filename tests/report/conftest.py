"""Fits on a small table whose names are out to break the page."""

from html.parser import HTMLParser

import numpy as np
import pytest

from confide.ledger import Ledger
from confide.report import PublicTest
from confide.schema import Column, Schema, Table
from confide.training import train

HOSTILE = "<script>alert(1)</script>"
NAMES = ('a"b\' onload="x" &amp;', "$x_1^{2$", "名前", "turn\u202eback", "n" * 150)
DECLARED_BY = "Data Office <office@example.org>"


def schema(**changes):
    columns = [Column(HOSTILE, "public", lower=-1, upper=1, unit="years", note="<b>why</b>")]
    columns += [Column(name, "public", lower=-2, upper=2) for name in NAMES]
    columns.append(Column("city", "public", categories=("<i>north</i>", "south")))
    columns.append(Column("income", "label", lower=-3, upper=3, unit="euros"))
    return Schema(**{"columns": tuple(columns), "name": "s&p <500>", "declared_by": DECLARED_BY, **changes})


def frame(n=600, seed=0):
    random = np.random.default_rng(seed)
    data = {HOSTILE: random.uniform(-1, 1, n)}
    data |= {name: random.uniform(-2, 2, n) for name in NAMES}
    data["city"] = random.choice(["<i>north</i>", "south"], n)
    data["income"] = data[HOSTILE] + 0.5 * data["名前"] + 0.3 * random.normal(size=n)
    return data


@pytest.fixture(scope="package")
def table():
    return Table.from_frame(frame(), schema())


@pytest.fixture(scope="package")
def test_table():
    return Table.from_frame(frame(200, seed=1), schema())


@pytest.fixture(scope="package")
def charged(table, tmp_path_factory):
    """A real release under a ledger with two accounts: (result, ledger, state before)."""
    place = tmp_path_factory.mktemp("ledger") / "book.db"
    book = Ledger.open(
        f"sqlite:///{place}", dataset="pay", epsilon=3, delta="1e-5", adjacency="replace_label", counter=False
    )
    book.grant("ann", "1.5", "1e-6")
    book.grant("bob", "1", "1e-6")
    train(table, epsilon="0.25", delta="1e-7", ledger=book, analyst="bob", label="earlier")
    before = book.show()
    result = train(table, epsilon="0.5", delta="1e-6", ledger=book, analyst="ann", label="<b>pay</b>")
    return result, book, before


@pytest.fixture(scope="package")
def seeded(table):
    return train(table, epsilon=1, delta=1e-6, random_state=7)


@pytest.fixture(scope="package")
def nonprivate(table):
    return train(table, epsilon=float("inf"), delta=1e-6, nonprivate=True)


@pytest.fixture(scope="package")
def public_test(test_table, table, nonprivate, seeded):
    label = schema().label
    means = Table(
        Schema(columns=(label,), name="s&p <500>", declared_by=DECLARED_BY),
        {"income": table.values("income")},
        600,
    )
    return PublicTest(
        test_table,
        "The <Board>",
        "Published last year.",
        baseline=train(means, epsilon="0.5", delta=1e-6),
        others=(seeded,),
        reference=nonprivate,
        reference_reason="Simulated.",
    )


class Page(HTMLParser):
    """Parses a page strictly: every element is closed in order; keeps what the tests ask about."""

    VOID = {"meta", "br", "hr", "img", "link"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        self.elements.append((tag, dict(attrs), tuple(name for name, _ in self.open)))
        if tag not in self.VOID:
            self.open.append((tag, len(self.elements) - 1))

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(name for name, _ in self.open)))
        assert tag in self.VOID or any(name == "svg" for name, _ in self.open)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        name, _ = self.open.pop()
        assert name == tag, f"</{tag}> closes <{name}>"

    def handle_data(self, data):
        if not self.open or self.open[-1][0] not in ("style", "title"):
            self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).replace("\xa0", " ").split())

    def all(self, tag):
        return [attributes for name, attributes, _ in self.elements if name == tag]

    def children(self, parent, child):
        """How many `parent` elements there are, and how many of them hold a `child`."""
        starts = [i for i, (name, _, _) in enumerate(self.elements) if name == parent]
        depth = {i: len(self.elements[i][2]) for i in starts}
        held = 0
        for i in starts:
            for name, _, above in self.elements[i + 1 :]:
                if len(above) <= depth[i]:
                    break
                if name == child:
                    held += 1
                    break
        return len(starts), held
