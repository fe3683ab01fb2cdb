"""What the report says: the guarantee, who declared what, the price, the ledger, and loud warnings."""

import json
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from confide.errors import ParameterError
from confide.privacy import Adjacency, Event, Guarantee
from confide.report import PublicTest, facts, summary, words, write_report
from confide.report.measured import Error, measure, share_kept
from confide.schema import Column

from .conftest import DECLARED_BY, HOSTILE, Page, schema


@pytest.fixture(scope="module")
def page(charged, table, public_test, tmp_path_factory):
    result, book, before = charged
    path = tmp_path_factory.mktemp("contents") / "report.html"
    write_report(result, path, table=table, ledger=book, before=before, test=public_test)
    return Page(path.read_text(encoding="utf-8"))


def test_the_guarantee_in_plain_words_and_in_technical_ones(page, charged):
    assert (
        "protects the income of any one row: changing the label of one row changes the probability"
        in page.text
    )
    assert "by a factor of at most 1.65 (plus a slack of 1 in 1,000,000)" in page.text
    assert str(charged[0].guarantee) in page.text
    assert "Neighbouring relation replace_label, unit one row" in page.text
    assert "62.3 % of the time" in page.text


def test_who_declared_what(page, table):
    assert DECLARED_BY in page.text
    assert table.schema.declaration in page.text
    assert table.schema.digest in page.text
    assert "-1 to 1 years" in page.text
    assert "label, secret" in page.text


def test_the_price_is_the_public_prediction(charged, table):
    result = charged[0]
    content = facts(result, table=table)
    amounts = {price.epsilon: price for price in content.prices}
    assert [p.epsilon for p in content.prices if p.chosen] == ["0.5"]
    for epsilon in ("0.1", "0.5", "8"):
        assert amounts[epsilon].noise == result.noise_error(float(epsilon))
    sizes = [price.noise for price in content.prices]
    assert sizes == sorted(sizes, reverse=True)
    odd = facts(charged[0], table=table)
    assert odd == content


def test_the_ledger_before_and_after(page, charged):
    _, book, before = charged
    state = book.show()
    content = facts(charged[0], ledger=book, before=before)
    total, ann, bob = content.ledger.accounts
    assert (total.limit["epsilon"], total.before["epsilon"], total.spent["epsilon"], total.remaining["epsilon"]) == (
        "3", "0.25", "0.75", "2.25",
    )  # fmt: skip
    assert (ann.before["epsilon"], ann.spent["epsilon"], ann.remaining["epsilon"]) == ("0", "0.5", "1")
    assert (bob.before["delta"], bob.spent["delta"]) == ("1e-07", "1e-07")
    assert content.ledger.own == state["charges"][1]["id"]
    assert state["head"] in page.text
    assert "<b>pay</b> (this release)" in page.text
    assert "rollback undetected" in page.text


def test_the_commands_name_the_ledger_from_the_reports_folder(charged, table, tmp_path):
    from pathlib import Path

    result, book, _ = charged
    file = Path(book.handle.removeprefix("sqlite:///").rpartition("#")[0])
    beside = write_report(result, file.parent / "beside.html", ledger=book)
    assert "--ledger 'sqlite:///book.db#pay'" in Page(beside.read_text()).text
    elsewhere = write_report(result, tmp_path / "elsewhere.html", ledger=book)
    assert f"--ledger '{book.handle}'" in Page(elsewhere.read_text()).text


def test_the_noise_check_that_the_page_prints_holds(page):
    match = re.search(r"s, e, d = ([\d.e-]+), ([\d/]+), ([\d/]+);", page.text)
    s, e, d = (float(Fraction(part)) for part in match.groups())
    assert (e, d) == (0.5, 1e-6)
    spent = norm.cdf(0.5 / s - e * s) - math.exp(e) * norm.cdf(-0.5 / s - e * s)
    assert d * (1 - 1e-6) <= spent <= d * (1 + 1e-9)


def test_what_is_not_covered(page):
    for heading in (
        "Public columns",
        "More than one row",
        "Other releases",
        "Declarations",
        "The table itself",
    ):
        assert heading in page.text
    assert "rests on no assumption about the data" in page.text


def test_test_errors_need_a_declaration(charged, table, test_table, public_test, page, tmp_path):
    result = charged[0]
    with pytest.raises(ParameterError, match="only where declared public"):
        write_report(result, tmp_path / "r.html", test=test_table)
    with pytest.raises(ParameterError, match="'declared_by'"):
        PublicTest(test_table, " ")
    with pytest.raises(ParameterError, match="reference_reason"):
        PublicTest(test_table, "us", reference=result)
    plain = Page(write_report(result, tmp_path / "r.html", table=table).read_text(encoding="utf-8"))
    assert "Error on public test labels" not in plain.text
    assert "declared public by The <Board>" in page.text
    assert "Published last year." in page.text
    assert "Not private, for comparison only" in page.text
    assert "Simulated." in page.text


def test_measured_errors_by_hand(charged, table, test_table, public_test):
    result = charged[0]
    content = facts(result, table=table, test=public_test).measured
    y = test_table.label
    mine = np.mean((result.model.predict(test_table) - y) ** 2)
    base = np.mean((public_test.baseline.model.intercept - y) ** 2)
    free = np.mean((public_test.reference.model.predict(test_table) - y) ** 2)
    assert content.error == pytest.approx(mine, rel=1e-12)
    assert content.baseline == pytest.approx(base, rel=1e-12)
    assert content.kept.value == pytest.approx((base - mine) / (base - free), rel=1e-12)
    assert [point.epsilon for point in content.points] == ["0.5", "1"]
    assert measure(public_test.reference, test_table).squared == content.reference


def test_share_kept_and_its_error():
    random = np.random.default_rng(0)
    shares = []
    for _ in range(400):
        free = random.exponential(1.0, 300)
        base = free + random.exponential(1.0, 300)
        mine = free + 0.2 * random.exponential(1.0, 300)
        errors = [Error(float(v.mean()), 0.0, v) for v in (mine, base, free)]
        shares.append(share_kept(*errors))
    values = np.array([share.value for share in shares])
    assert values.mean() == pytest.approx(0.8, abs=0.005)
    assert np.mean([share.deviation for share in shares]) == pytest.approx(values.std(), rel=0.15)
    assert share_kept(errors[0], errors[2], errors[1]) is None


@pytest.mark.parametrize("kind", ["seeded", "nonprivate"])
def test_results_without_privacy_say_so_loudly(kind, request, table, tmp_path):
    result = request.getfixturevalue(kind)
    text = write_report(result, tmp_path / "r.html", table=table).read_text(encoding="utf-8")
    page = Page(text)
    assert page.text.index("NOT PRIVATE") < page.text.index("What is public")
    assert 'class="banner"' in text
    assert "This model is not private" in page.text
    assert "protects the" not in page.text
    assert "guesses right" not in page.text
    assert "rests on no assumption" not in page.text
    assert "There is no guarantee" in page.text


def test_unrecorded_releases_say_so(table, tmp_path):
    from confide.training import train

    result = train(table, epsilon=1, delta=1e-6)
    text = write_report(result, tmp_path / "r.html", table=table).read_text(encoding="utf-8")
    assert "No ledger recorded this release" in text
    assert "NOT PRIVATE" not in text
    assert "protects the income" in text


def test_only_declarations_of_the_table_are_read(charged, table, tmp_path):
    """A report is post-processing: the table may have lost all its cells."""
    whole = write_report(charged[0], tmp_path / "a.html", table=table).read_bytes()
    bare = write_report(charged[0], tmp_path / "b.html", table=table.schema).read_bytes()
    assert whole == bare


def test_another_schema_is_refused(charged):
    other = schema(declared_by="somebody else")
    with pytest.raises(ParameterError, match="other columns public"):
        facts(charged[0], table=other)
    with pytest.raises(ParameterError, match="its schema"):
        facts(charged[0], table=3)


def test_json_form(charged, table, public_test):
    result, book, before = charged
    content = facts(result, table=table, ledger=book, before=before, test=public_test)
    data = json.loads(json.dumps(content.to_dict(), allow_nan=False))
    assert data["sentence"] == str(result.guarantee)
    assert data["ledger"]["own"] == content.ledger.own
    assert data["measured"]["kept"]["value"] == content.measured.kept.value
    assert len(data["columns"]) == 8


def test_terminal_form(charged, seeded, table):
    from rich.console import Console

    def shown(result):
        console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        console.print(summary(result, table=table))
        return console.export_text()

    text = shown(charged[0])
    assert str(charged[0].guarantee) in text
    assert HOSTILE in text
    assert "euros" in text
    assert "NOT PRIVATE" not in text
    assert "NOT PRIVATE" in shown(seeded)


# ---- words ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 40.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.3])
def test_the_limit_on_guessing_is_the_definition(epsilon, delta):
    """Against the extreme mechanism: reveal with probability delta, else answer at random with epsilon."""
    reveal = delta + (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    assert words.guess_limit(epsilon, delta) == pytest.approx(reveal, rel=1e-12)
    assert words.guess_limit(math.inf, delta) == 1.0


def test_the_gaussian_limit_is_below_the_general_one():
    from confide.privacy import gaussian_sigma

    for epsilon in (0.1, 1, 5):
        multiplier = gaussian_sigma(epsilon, 1e-6, 1.0)
        limit = words.gaussian_guess_limit(multiplier)
        assert limit == pytest.approx(norm.cdf(0.5 / multiplier), rel=1e-12)
        assert limit < words.guess_limit(epsilon, 1e-6)


@pytest.mark.parametrize("relation", list(Adjacency))
def test_every_relation_has_its_sentence(relation):
    event = Event.of("laplace", epsilon=1.0)
    guarantee = Guarantee(1, 0, relation, "person", event)
    sentence = words.headline(guarantee, "visits")
    assert relation.sentence.format(unit="person") in sentence
    assert "slack" not in sentence
    listed = dict(words.not_covered(guarantee, ("age",), "visits"))
    public = relation in (Adjacency.REPLACE_LABEL, Adjacency.REPLACE_PRIVATE_PART)
    assert ("Public columns" in listed) == public
    assert ("The number of rows" in listed) == (relation is Adjacency.REPLACE_ONE)


@pytest.mark.parametrize(
    ("epsilon", "verb"),
    [("1", " protects "), ("4", " protects "), ("8", " only weakly protects "), ("20", " hardly protects ")],
)
def test_large_epsilon_is_not_called_protection(epsilon, verb):
    guarantee = Guarantee(epsilon, 0, "replace_label", "row", Event.of("laplace", epsilon=float(epsilon)))
    assert verb in words.headline(guarantee, "x")


def test_at_most_rounds_up():
    assert words.headline(
        Guarantee(Fraction(1, 4), 0, "replace_label", "row", Event.of("laplace", epsilon=0.25)), "x"
    ).endswith("at most 1.29.")  # e^0.25 = 1.2840


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.00793, "0.00793"),
        (1234.5, "1234"),
        (math.inf, "infinite"),
        (2.5e-9, "2.50e-09"),
        (-1, "-1.00"),
    ],
)
def test_numbers(value, text):
    assert words.number(value) == text


def test_effects_in_the_columns_own_units():
    from confide.schema import Schema

    columns = (
        Column("age", "public", lower=0, upper=100, unit="years"),
        Column("city", "public", categories=("a", "b")),
        Column("pay", "label", lower=1, upper=100, transform="log"),
    )
    declared = Schema(columns=columns)
    assert words.effect_words("age", 0.5, declared) == "+1.01\u00a0% per year"  # e^(0.5/50) - 1
    assert words.effect_words("city=a", -0.1, declared) == "\u22129.52\u00a0%"
    assert words.effect_words("(intercept)", 1.0, declared) == ""
    plain = Schema(columns=(columns[0], Column("visits", "label", lower=0, upper=20, unit="visits")))
    assert words.effect_words("age", 0.5, plain) == "+0.0100 visits per year"
    assert words.column_words("city=a", declared) == "city: a"
    assert words.column_words("age", declared) == "age"
