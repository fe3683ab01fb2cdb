"""One door reads every saved model."""

import numpy as np
import pandas as pd
import pytest

import confide
from confide.errors import DataError, ParameterError
from confide.pipeline import select_and_fit
from confide.prediction import CertifiedModel
from confide.schema import Table

COLUMNS = {
    "x": {"role": "public", "lower": -1, "upper": 1},
    "z": {"role": "public", "lower": -1, "upper": 1},
}
ROWS = pd.DataFrame(np.random.default_rng(0).uniform(-1, 1, (60, 2)), columns=["x", "z"])
NUMBER = {"columns": {**COLUMNS, "y": {"role": "label", "lower": -1, "upper": 1}}}
CLASSES = {"columns": {**COLUMNS, "y": {"role": "label", "categories": ["no", "yes"]}}}
ASK = {"epsilon": 1, "delta": 1e-6}


def number():
    return Table.from_frame(ROWS.assign(y=ROWS.x), NUMBER)


def classes():
    return Table.from_frame(ROWS.assign(y=np.where(ROWS.x > 0, "yes", "no")), CLASSES)


MADE = {
    "LinearModel": lambda: confide.train(number(), **ASK).model,
    "TableModel": lambda: confide.train(classes(), **ASK).model,
    "SparseModel": lambda: select_and_fit(number(), size=1, epsilon=1).model,
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", list(MADE))
def test_a_released_model_comes_back_as_it_is(kind, tmp_path):
    model = MADE[kind]()
    model.save(tmp_path / "m.json")
    held = confide.load(tmp_path / "m.json")
    assert type(held).__name__ == kind
    np.testing.assert_array_equal(held.predict(ROWS), model.predict(ROWS))
    with pytest.raises(ParameterError, match="free"):
        confide.load(tmp_path / "m.json", ledger="sqlite:///l.db#a")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_certified_model_and_a_result(tmp_path):
    confide.certify(classes()).save(tmp_path / "c.npz")
    assert isinstance(confide.load(tmp_path / "c.npz"), CertifiedModel)
    X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    made = confide.CertifiedClassifier([0, 1], (-1, 1)).fit(X, X[:, 0] > 0)
    made.save(tmp_path / "a.npz")
    held = confide.load(tmp_path / "a.npz", ledger="sqlite:///l.db#a")
    assert isinstance(held, confide.CertifiedClassifier)
    assert held.ledger == "sqlite:///l.db#a"
    np.testing.assert_array_equal(held.stability(X)[1], made.stability(X)[1])
    result = confide.train(number(), **ASK)
    (tmp_path / "r.json").write_text(result.to_json())
    np.testing.assert_array_equal(confide.load(tmp_path / "r.json").predict(ROWS), result.predict(ROWS))


def test_what_is_no_model(tmp_path):
    (tmp_path / "other.json").write_text('{"format": "other/1"}')
    (tmp_path / "text.json").write_text("no json")
    for name in ("other.json", "text.json", "missing.json"):
        with pytest.raises(DataError):
            confide.load(tmp_path / name)
