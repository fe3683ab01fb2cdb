"""The scorer of searches: the expected share of right answers, on rows that somebody calls public."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from confide.errors import ParameterError, UnsupportedError
from confide.prediction import CertifiedClassifier, private_scorer

from .helpers import blobs  # isort: skip


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(("release", "delta"), [("response", 0), ("ptr", 1e-4), ("global", 0)])
def test_the_score_is_the_mean_of_drawn_answers(classes, release, delta):
    X, y = blobs(800, classes=classes, seed=1)
    model = CertifiedClassifier(list(range(classes)), (-1, 1), alpha=0.1, random_state=4).fit(X, y)
    score = private_scorer("0.1", delta, release, public=True)(model, X, y)
    drawn = [np.mean(model.answer(X, "0.1", delta, release, random_state=seed) == y) for seed in range(20)]
    assert abs(score - np.mean(drawn)) < 5 * 0.5 / np.sqrt(800 * 20)


def test_a_search_ranks_private_answers_and_not_the_model():
    X, y = blobs(300, seed=2, spread=0.6)
    steps = make_pipeline(FunctionTransformer(lambda rows: rows / 2), CertifiedClassifier([0, 1], (-1, 1)))
    grid = {"certifiedclassifier__alpha": [1e-4, 0.3]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = GridSearchCV(steps, grid, scoring=private_scorer(0.1, public=True), error_score="raise")
        assert search.fit(X, y).best_params_ == {"certifiedclassifier__alpha": 0.3}
    told = search.cv_results_["mean_test_score"]
    assert told[1] > told[0] + 0.1
    fitted = search.best_estimator_
    direct = private_scorer(0.1, public=True)(clone(fitted[-1]).fit(X / 2, y), X / 2, y)
    assert search.score(X, y) == pytest.approx(direct)


def test_what_is_refused():
    with pytest.raises(ParameterError, match="public=True"):
        private_scorer(1)
    with pytest.raises(UnsupportedError, match="sparse_vector"):
        private_scorer(1, 1e-6, "sparse_vector", public=True)
    for terms in ((0,), (1, 0, "ptr"), (1, 0, "noise"), (-1,)):
        with pytest.raises(ParameterError):
            private_scorer(*terms, public=True)
    X, y = blobs(50)
    scorer = pickle.loads(pickle.dumps(private_scorer(1, public=True)))  # goes to workers
    with pytest.raises(ParameterError, match="LogisticRegression"):
        scorer(LogisticRegression().fit(X, y), X, y)
