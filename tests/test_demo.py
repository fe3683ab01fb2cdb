"""The main job, end to end on the packaged table, with a short list of epsilon."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

from confide.cli import demo as demo_module
from confide.cli.app import app
from confide.cli.demo import held_out_rows, run_demo
from confide.errors import LedgerError, ParameterError


def invoke(*arguments):
    return CliRunner().invoke(app, ["demo", *arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("a folder with spaces")


@pytest.fixture(scope="module")
def outcome(folder):
    done = invoke("--epsilon", "0.25", "-e", "1", "--report", str(folder / "demo.html"), "--json")
    assert done.exit_code == 0
    return json.loads(done.stdout)


def test_privacy_costs_little_on_the_wage_table(outcome):
    quarter, one = outcome["results"]
    assert (quarter["epsilon"], one["epsilon"]) == ("0.25", "1")
    reference = outcome["nonprivate_mse"]
    for result in (quarter, one):
        # The mean is 70 % worse than the fit; a tenth of that is sixteen times what the noise is expected to add.
        assert reference * 0.98 < result["mse"] < reference + 0.1 * (result["private_mean_mse"] - reference)
        assert result["share_kept"] > 0.9
        assert result["assumptions"] == []
        gain = result["private_mean_mse"] - reference
        assert result["share_kept"] == pytest.approx((result["private_mean_mse"] - result["mse"]) / gain)
        assert result["share_expected"] == pytest.approx(1 - result["predicted_noise_mse"] / gain)
    assert one["predicted_noise_mse"] < quarter["predicted_noise_mse"]
    assert one["share_expected"] > 0.999


def test_every_release_is_charged_exactly_and_one_more_is_refused(outcome):
    ledger = outcome["ledger"]
    assert ledger["spent"] == {"epsilon": "5/2", "delta": "1/250000"}
    assert ledger["remaining"] == {"epsilon": "0", "delta": "0"}
    assert sum(Fraction(c["charge"]["epsilon"]) for c in ledger["charges"]) == Fraction(5, 2)
    assert [c["label"] for c in ledger["charges"]] == [
        "wage model, epsilon 0.25",
        "mean wage, epsilon 0.25",
        "wage model, epsilon 1",
        "mean wage, epsilon 1",
    ]
    assert {a["analyst"]: a["spent"]["epsilon"] for a in ledger["analysts"]} == {
        "baseline": "5/4",
        "modeller": "5/4",
    }
    refusal = outcome["refusal"]
    assert refusal["spent"] == refusal["limit"] == "epsilon = 2.5, delta = 4e-06"
    assert refusal["asked"] == "epsilon = 0.25, delta = 1e-06"
    assert "spent epsilon = 2.5" in refusal["message"]


def test_the_report_is_of_epsilon_one_and_names_its_entry(outcome, folder):
    assert outcome["report"] == str(folder / "demo.html")
    assert outcome["report_epsilon"] == "1"
    text = Path(outcome["report"]).read_text(encoding="utf-8")
    assert len(text.encode()) < 500_000
    assert "NOT PRIVATE" not in text
    assert outcome["ledger"]["charges"][2]["id"] in text
    assert outcome["ledger"]["head"] in text
    assert "the Confide developers, for this demonstration" in text
    assert "sqlite:///demo-ledger.db#cps1988-demo-1" in text.replace("&#x27;", "'")


def test_a_second_run_opens_a_fresh_account_in_the_same_file(outcome, folder):
    from confide.ledger import Ledger

    again = run_demo(["2"], report=folder / "demo.html")
    assert again["ledger"]["dataset"] == "cps1988-demo-2"
    assert again["ledger"]["spent"]["epsilon"] == "4"
    # The first run's account is as it was.
    first = Ledger.open(
        f"sqlite:///{folder / 'demo-ledger.db'}", dataset="cps1988-demo-1", create=False, counter=False
    )
    assert first.total().epsilon == Fraction(5, 2)
    assert first.verify().head == outcome["ledger"]["head"]
    assert again["report_epsilon"] == "2"


def test_a_ledger_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setenv("CONFIDE_LEDGER_COUNTER", str(tmp_path / "counter"))
    url = f"sqlite:///{tmp_path / 'own.db'}#wages"
    run = run_demo(["1"], report=tmp_path / "r.html", ledger=url)
    assert run["ledger"]["handle"] == url
    assert not (tmp_path / "demo-ledger.db").exists()
    # The same name again: its budget is used up, or another was asked for. Neither is papered over.
    with pytest.raises(LedgerError):
        run_demo(["1"], report=tmp_path / "r.html", ledger=url)
    with pytest.raises(LedgerError, match="was opened with"):
        run_demo(["2"], report=tmp_path / "r.html", ledger=url)


def test_seeded_runs_repeat_and_are_marked(tmp_path):
    runs = [run_demo(["1"], report=tmp_path / f"{i}.html", seed=3) for i in range(2)]
    assert runs[0]["results"] == runs[1]["results"]
    assert runs[0]["ledger"] is None
    assert runs[0]["refusal"] is None
    assert "seeded" in runs[0]["results"][0]["assumptions"]
    pages = [(tmp_path / f"{i}.html").read_bytes() for i in range(2)]
    assert pages[0] == pages[1]
    assert b"NOT PRIVATE" in pages[0]
    assert not (tmp_path / "demo-ledger.db").exists()


def test_it_tells_people_what_it_assumes(tmp_path):
    done = invoke("-e", "1", "--report", str(tmp_path / "r.html"))
    text = " ".join(done.stdout.split())
    assert done.exit_code == 0
    assert "by our assumption" in text
    assert "declare the labels of the held-out rows public for this demonstration" in text
    assert "not private, for comparison only: it needs the true labels" in text
    assert "one too many" not in text
    assert "Nothing was read for it, and nothing was spent." in text
    assert "confide ledger show --verify" in text
    assert str(tmp_path / "r.html") in text.replace(" ", "")


def test_the_command_it_names_verifies_the_ledger(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONFIDE_LEDGER_COUNTER", str(tmp_path / "counter"))
    done = json.loads(invoke("-e", "1", "--json").stdout)
    shown = CliRunner().invoke(
        app, ["ledger", "show", "--verify", "--json", "--ledger", done["ledger"]["handle"]]
    )
    state = json.loads(shown.stdout)
    assert state["verified"] is True
    assert state["head"] == done["ledger"]["head"]


@pytest.mark.parametrize("epsilons", [["0"], ["1", "1.0"], ["-1"], ["nan"], []])
def test_bad_epsilons_are_refused_before_anything_is_written(epsilons, tmp_path):
    with pytest.raises(ParameterError, match="epsilon"):
        run_demo(epsilons, report=tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_a_report_that_cannot_be_a_file_is_refused_before_anything_is_spent(tmp_path):
    with pytest.raises(ParameterError, match="is a folder"):
        run_demo(["1"], report=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_split_is_public_and_a_fifth():
    held = held_out_rows(28155)
    assert held.mean() == pytest.approx(demo_module.HELD_OUT, abs=1e-3)
    assert (held_out_rows(100) == held[:100]).all()  # a rule on the row number alone


def test_files_are_copied_once_and_nothing_else_is_overwritten(tmp_path):
    from typer.testing import CliRunner

    from confide.cli.app import app

    assert CliRunner().invoke(app, ["demo", "--files", str(tmp_path)]).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"wages.parquet", "wages.toml"}
    assert CliRunner().invoke(app, ["demo", "--files", str(tmp_path)]).exit_code == 0
    (tmp_path / "wages.toml").write_text("mine")
    refused = CliRunner().invoke(app, ["demo", "--files", str(tmp_path)])
    assert refused.exit_code != 0
    assert (tmp_path / "wages.toml").read_text() == "mine"
