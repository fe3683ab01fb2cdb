"""A model that noise drowned says so, a spread that noise dominates is not printed, and each release's cost stands alone."""

import io
import re

import numpy as np
import pytest

from confide.errors import ParameterError
from confide.ledger import Ledger
from confide.report import facts, summary, words, write_report
from confide.report.noise import Spread, drowned, epsilon_for, spread
from confide.schema import Column, Schema, Table
from confide.training import train

from .conftest import HOSTILE, Page


def people(n=1200, slope=0.3, seed=0):
    """Return a table with four rows a person, of which three count."""
    random = np.random.default_rng(seed)
    age = random.uniform(0, 100, n)
    data = {
        "who": np.arange(n) // 4,
        "age": age,
        "rate": random.uniform(1, 5, n),
        "visits": 3 + slope * (age - 50) / 10 + random.normal(size=n),
    }
    columns = (
        Column("who", "id"),
        Column("age", "public", lower=0, upper=100, unit="years"),
        Column("rate", "public", lower=1, upper=5),
        Column("visits", "label", lower=0, upper=20),
    )
    return Table.from_frame(data, Schema(columns=columns, name="visits", max_rows_per_id=3))


@pytest.fixture(scope="module")
def crowd():
    return people()


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    place = tmp_path_factory.mktemp("book") / "book.db"
    return Ledger.open(
        f"sqlite:///{place}",
        dataset="visits",
        epsilon=60,
        delta="1e-4",
        adjacency="replace_label",
        unit="person",
        counter=False,
    )


@pytest.fixture(scope="module")
def weak(crowd, book):
    return train(crowd, epsilon="0.01", delta="1e-6", ledger=book, engine="closed_form")


@pytest.fixture(scope="module")
def strong(book):
    return train(people(40_000), epsilon=40, delta="1e-6", ledger=book)


def text_of(result, path, **options):
    return Page(write_report(result, path, **options).read_text(encoding="utf-8")).text


def test_a_drowned_model_says_so_first(weak, crowd, tmp_path):
    sentence = drowned(weak, "visits")
    assert sentence.startswith("Noise drowns this model: less than 0.1 of 2 directions survive.")
    page = text_of(weak, tmp_path / "r.html", table=crowd)
    assert page.index("Noise drowns this model") < page.index("typical error from privacy noise")
    assert "Noise drowns this model" in " ".join(str(summary(weak, table=crowd)).split())


def test_a_model_that_is_the_mean_says_so(crowd, tmp_path):
    mean = train(crowd, epsilon="0.01", delta="1e-6")
    assert [item.name for item in mean.trace.rounds] == ["mean"]
    assert drowned(mean).startswith("This model is the mean of the label and no more")
    assert "This model is the mean of the label" in text_of(mean, tmp_path / "r.html", table=crowd)


def test_the_epsilon_it_names_reaches_the_noise_it_names(crowd, weak):
    many = train(people(40_000), epsilon="0.01", delta=1e-6, engine="closed_form")
    named = re.search(r"At epsilon ([\d.]+) it would be ([\d.]+), a hundredth", drowned(many))
    epsilon, target = (float(part) for part in named.groups())
    assert target == pytest.approx(0.2)  # a hundredth of [0, 20]
    assert many.noise_error(epsilon) <= 0.2 < many.noise_error(0.9 * epsilon)
    # No epsilon that hardly protects is proposed.
    assert weak.noise_error(10) > 0.2
    assert "Not even epsilon 10 would bring it down to 0.20" in drowned(weak)


def test_no_epsilon_is_named_where_none_is_enough(weak):
    assert epsilon_for(weak, 1e-9) is None
    assert epsilon_for(weak, 0.0) is None
    assert epsilon_for(weak, 1e12) == pytest.approx(1e-4)


def test_a_model_that_noise_left_alone_says_nothing(strong, nonprivate):
    for result in (strong, nonprivate):
        assert drowned(result) == ""
        assert spread(result).known


def test_columns_without_a_relation_are_not_blamed_on_privacy():
    random = np.random.default_rng(1)
    columns = tuple(Column(f"x{i}", "public", lower=-3, upper=3) for i in range(8))
    declared = Schema(columns=(*columns, Column("y", "label", lower=-3, upper=3)))
    data = {f"x{i}": random.normal(size=20_000) for i in range(8)} | {"y": random.normal(size=20_000)}
    result = train(Table.from_frame(data, declared), epsilon=30, delta=1e-6)
    assert drowned(result).startswith("The public columns explain little here: ")
    assert "Noise drowns" not in drowned(result)


def test_a_spread_that_noise_dominates_is_not_printed(weak, strong, crowd, tmp_path):
    assert not spread(weak).known
    page = text_of(weak, tmp_path / "weak.html", table=crowd)
    assert words.number(weak.residual_deviation) not in page
    assert "not determined" in page
    assert "of the spread about the fit" not in page
    assert "spread about the fit:" not in (tmp_path / "weak.html").read_text()
    assert "is not determined" in " ".join(str(summary(weak, table=crowd)).split())
    sure = text_of(strong, tmp_path / "strong.html", table=crowd)
    assert f"labels lie {words.number(strong.residual_deviation)}" in sure
    tile = sure[sure.index("typical error") : sure.index("rows (public)")]
    assert "%" not in tile  # no headline is a share of an estimate


def test_a_spread_carries_its_error_where_the_result_tells_it():
    assert Spread(0.5, 0.0123, True).words(" euros") == "0.500\u00a0±\u00a00.012 euros"
    assert Spread(0.5, None, True).words() == Spread(0.5, 0.0, True).words() == "0.500"
    assert Spread(5.76, 3.0, False).words(" euros") == "not determined"


@pytest.mark.slow
def test_a_spread_called_determined_is_near_the_truth(crowd):
    """Over many releases: what is shown lies near the true deviation, 1."""
    shown = [
        result.residual_deviation
        for epsilon in (0.3, 10, 60, 100, 200)
        for _ in range(20)
        if spread(result := train(crowd, epsilon=epsilon, delta=1e-6)).known
    ]
    assert len(shown) > 10
    assert np.mean([0.5 < value < 1.6 for value in shown]) > 0.95


def test_people_and_the_cap_on_their_rows(weak, crowd, tmp_path):
    page = text_of(weak, tmp_path / "r.html", table=crowd)
    assert "at most 3 rows of each person" in page
    assert "900 rows (at most 3 rows of each person)" in " ".join(str(summary(weak, table=crowd)).split())
    assert "What several people share" in page
    assert "several persons" not in page
    assert "identifies a unit" not in page
    assert "per 1" not in page
    assert "about 0" in page  # shrunk to nothing: no digits of it
    assert words.effect_words("rate", 0.5, crowd.schema) == "+0.250 per unit"
    items = dict(words.not_covered(weak.guarantee, ("age",), "visits", grouped=True))
    assert "More than one person" not in items


def test_the_ledger_tells_this_release_from_the_total(weak, book, crowd, tmp_path):
    page = text_of(weak, tmp_path / "r.html", table=crowd, ledger=book)
    content = facts(weak, ledger=book)
    total = content.ledger.accounts[0]
    assert (total.own["epsilon"], total.before) == ("0.01", None)
    assert "this release" in page
    assert "spent in total" in page
    assert "before and after" not in page
    known = text_of(weak, tmp_path / "s.html", table=crowd, ledger=book, before=book.show())
    assert "The ledger, before and after" in known


def test_only_the_account_that_paid_shows_the_cost(charged):
    result, book, before = charged
    total, ann, bob = facts(result, ledger=book, before=before).ledger.accounts
    assert total.own == ann.own == {"epsilon": "0.5", "delta": "1e-06"}
    assert bob.own is None


def test_names_lie_behind_bars(weak, crowd, tmp_path):
    """The paper behind a name is drawn before the bars, so that it cuts nothing out of them."""
    text = write_report(weak, tmp_path / "r.html", table=crowd).read_text(encoding="utf-8")
    picture = next(s for s in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL) if "effects-" in s)
    assert picture.rindex("fill: var(--paper)") < picture.index("stroke: var(--accent)")


def test_the_summary_shows_itself(charged, table):
    short = summary(charged[0], table=table)
    page = Page(short._repr_html_())
    assert HOSTILE in page.text
    assert "<script" not in short._repr_html_()
    assert str(charged[0].guarantee) in " ".join(str(short).split())
    from rich.console import Console

    console = Console(file=io.StringIO(), width=200)
    console.print(short)
    assert str(charged[0].guarantee) in console.file.getvalue()


@pytest.mark.parametrize("path", [".", 3, "taken/r.html"])
def test_a_path_that_cannot_be_a_file_is_refused(path, charged, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(ParameterError, match=r"folder|path"):
        write_report(charged[0], path)
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


def test_noise_beyond_the_range_is_told_as_the_range():
    result = train(people(), epsilon="1e-9", delta="1e-6", engine="closed_form")
    text = " ".join(str(summary(result)).split())
    assert "moves a typical prediction by the whole range" in text
