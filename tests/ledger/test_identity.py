"""A handle stays one account book under copies, clones, pickles, forks and threads: F01, F02, F03, F20, F21."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from confide.errors import BudgetError, LedgerError, ParameterError, UnsupportedError
from confide.ledger import Ledger, resolve
from confide.ledger.store import Store
from confide.privacy.event import Event
from confide.privacy.guarantee import Guarantee

try:
    from joblib.externals import cloudpickle
except ImportError:  # joblib >= 1.6 depends on it instead
    import cloudpickle

# Workers cannot import this file by name (pytest's importlib mode): send what it defines by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Mean(RegressorMixin, BaseEstimator):
    """The smallest estimator that charges before it reads, as every front door does."""

    def __init__(self, epsilon=0.1, ledger=None):
        self.epsilon = epsilon
        self.ledger = ledger

    def fit(self, X, y):
        event = Event.of("laplace", epsilon=float(self.epsilon))
        ledger = resolve(self.ledger)
        if ledger is not None:
            reservation = ledger.reserve(Guarantee(self.epsilon, 0, "replace_one", "row", event))
        self.mean_ = float(np.mean(y))
        if ledger is not None:
            ledger.settle(reservation)
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


X, Y = np.zeros((12, 1)), np.arange(12.0)


def test_copies_are_the_same_ledger(ledger, guarantee):
    for other in (copy.copy(ledger), copy.deepcopy(ledger), clone(ledger, safe=False)):
        assert other == ledger
        assert hash(other) == hash(ledger)
        other.reserve(guarantee(0.1))
    assert ledger.total().epsilon == Fraction(3, 10)
    assert copy.deepcopy({"a": [ledger]})["a"][0] is ledger


def test_a_pickle_is_a_handle_on_the_same_store(ledger, guarantee):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        other = pickle.loads(pickle.dumps(ledger, protocol))
        assert other == ledger
        other.reserve(guarantee(0.1))
    assert ledger.total().epsilon == Fraction(pickle.HIGHEST_PROTOCOL + 1, 10)


def test_a_pickle_away_from_its_store_reads_and_refuses(sqlite_url, open_ledger, guarantee, tmp_path):
    text = pickle.dumps(open_ledger(sqlite_url))
    Store.at(sqlite_url).close()
    (tmp_path / "ledger.db").rename(tmp_path / "elsewhere.db")
    orphan = pickle.loads(text)
    assert orphan.dataset == "visits"
    for act in (lambda: orphan.reserve(guarantee()), orphan.total):
        with pytest.raises(LedgerError):
            act()
    assert not (tmp_path / "ledger.db").exists()


def test_accepted_assumptions_travel_with_the_handle(url, open_ledger, guarantee):
    ledger = pickle.loads(pickle.dumps(open_ledger(url, accept=("timing",))))
    ledger.reserve(guarantee(assumptions=("timing",)))


def test_equality(url, sqlite_url, open_ledger):
    ledger = open_ledger(url)
    assert ledger == Ledger.from_handle(ledger.handle)
    assert ledger != open_ledger(url, dataset="other")
    assert ledger != open_ledger(sqlite_url + ".other")
    assert ledger != "ledger"


def test_a_clone_of_an_estimator_charges_the_one_ledger(ledger):
    estimator = Mean(0.1, ledger)
    clone(clone(estimator)).fit(X, Y)
    assert estimator.get_params()["ledger"] is ledger
    assert ledger.total().epsilon == Fraction(1, 10)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_grid_search_is_charged_in_full(ledger, jobs):
    # 2 epsilons x 3 folds + refit at the better one
    search = GridSearchCV(
        Mean(ledger=ledger), {"epsilon": [0.05, 0.1]}, cv=3, n_jobs=jobs, error_score="raise"
    )
    search.fit(X, Y)
    refit = Fraction(str(search.best_params_["epsilon"]))
    assert ledger.total().epsilon == 3 * Fraction(15, 100) + refit
    assert {charge["status"] for charge in ledger.show()["charges"]} == {"settled"}
    assert ledger.verify()


def test_a_grid_search_stops_before_the_fit_that_would_overspend(url, open_ledger):
    ledger = open_ledger(url, epsilon=0.5)
    search = GridSearchCV(Mean(ledger=ledger), {"epsilon": [0.1, 0.2]}, cv=3, error_score="raise")
    with pytest.raises(BudgetError):
        search.fit(X, Y)
    assert not hasattr(search, "best_estimator_")
    assert ledger.total().epsilon == Fraction(5, 10)  # 3 x 0.1 and one of 0.2; the next did not fit


def test_cross_validation_charges_each_fold_and_refuses_the_last(ledger):
    with pytest.raises(BudgetError):
        cross_val_score(Mean(0.3, ledger), X, Y, cv=5, error_score="raise")
    assert ledger.total().epsilon == Fraction(9, 10)


def test_two_joblib_workers_do_not_double_the_budget(ledger, guarantee):
    charge = guarantee(0.3)

    def work(handle):
        try:
            handle.reserve(charge)
        except BudgetError:
            return 0
        return 1

    answers = joblib.Parallel(n_jobs=2)(joblib.delayed(work)(ledger) for _ in range(8))
    assert sum(answers) == 3
    assert ledger.total().epsilon == Fraction(9, 10)


def test_parameters_are_plain_and_survive_saving(sqlite_url, open_ledger, tmp_path):
    ledger = open_ledger(sqlite_url)
    estimator = Mean(0.1, ledger.handle)
    saved = json.loads(json.dumps(estimator.get_params()))
    loaded = Mean(**saved).fit(X, Y)
    assert ledger.total().epsilon == Fraction(1, 10)
    path = tmp_path / "model.joblib"
    joblib.dump(Mean(0.1, ledger).fit(X, Y), path)
    again = joblib.load(path)
    assert again.predict(X).tolist() == loaded.predict(X).tolist()
    assert again.ledger == ledger
    again.fit(X, Y)
    assert ledger.total().epsilon == Fraction(3, 10)


def test_a_refused_fit_leaves_nothing_fitted(ledger):
    estimator = Mean(2, ledger)
    with pytest.raises(BudgetError):
        estimator.fit(X, Y)
    assert not hasattr(estimator, "mean_")


def test_of_two_threads_one_is_refused_before_it_reads(ledger):
    fitted = []
    barrier = threading.Barrier(2)

    def run():
        estimator = Mean(0.6, ledger)
        barrier.wait()
        try:
            estimator.fit(X, Y)
        except BudgetError:
            return hasattr(estimator, "mean_")
        fitted.append(estimator)
        return None

    with ThreadPoolExecutor(2) as pool:
        answers = [task.result() for task in (pool.submit(run), pool.submit(run))]
    assert sorted(answers, key=str) == [False, None]
    assert len(fitted) == 1
    assert ledger.total().epsilon == Fraction(6, 10)


def test_best_of_k_runs_is_k_charges(ledger):
    runs = [Mean(0.1, ledger).fit(X, Y + i) for i in range(7)]
    assert max(runs, key=lambda run: run.mean_) is runs[-1]
    assert ledger.total().epsilon == Fraction(7, 10)


def test_forked_children_charge_the_same_store(ledger, guarantee):
    ledger.reserve(guarantee(0.1))
    context = multiprocessing.get_context("fork")

    def child():
        ledger.settle(ledger.reserve(guarantee(0.1)))
        os._exit(0 if ledger.verify() else 1)

    children = [context.Process(target=child) for _ in range(3)]
    for process in children:
        process.start()
        ledger.reserve(guarantee(0.1))
    for process in children:
        process.join(60)
        assert process.exitcode == 0
    assert ledger.total().epsilon == Fraction(7, 10)
    assert ledger.verify()


def test_a_fork_amid_charging_threads_neither_hangs_nor_charges_twice(url, open_ledger, guarantee):
    ledger = open_ledger(url, epsilon=10**9)
    stop = threading.Event()
    done = []

    def charge():
        count = 0
        while not stop.is_set():
            ledger.reserve(guarantee(1))
            count += 1
        done.append(count)

    threads = [threading.Thread(target=charge) for _ in range(4)]
    for thread in threads:
        thread.start()
    codes = []
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            try:
                ledger.reserve(guarantee(1))
                os._exit(0)
            finally:
                os._exit(1)
        codes.append(os.waitpid(pid, 0)[1])
    stop.set()
    for thread in threads:
        thread.join(60)
    assert codes == [0] * 5
    assert ledger.total().epsilon == sum(done) + 5
    assert ledger.verify()


# -- handles


def test_resolve(ledger):
    assert resolve(None) is None
    assert resolve(ledger) is ledger
    assert resolve(ledger.handle) == ledger
    with pytest.raises(ParameterError, match="handle"):
        resolve(3)


def test_a_handle_of_no_ledger_says_how_to_create_it(url, sqlite_url, ledger, tmp_path):
    with pytest.raises(LedgerError, match="confide ledger create"):
        resolve(ledger.handle.replace("#visits", "#nothing"))
    with pytest.raises(LedgerError, match="confide ledger create"):
        resolve(f"sqlite:///{tmp_path / 'absent.db'}#visits")
    with pytest.raises(ParameterError, match="names no dataset"):
        resolve(sqlite_url)
    assert not (tmp_path / "absent.db").exists()


def test_a_relative_path_stays_put_when_the_folder_changes(tmp_path, monkeypatch, open_ledger, guarantee):
    monkeypatch.chdir(tmp_path)
    ledger = open_ledger("sqlite:///here.db")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    pickle.loads(pickle.dumps(ledger)).reserve(guarantee())
    assert (tmp_path / "here.db").exists()
    assert not (tmp_path / "sub" / "here.db").exists()


def test_paths_with_spaces_and_hashes(tmp_path, open_ledger, guarantee):
    folder = tmp_path / "a folder #1"
    folder.mkdir()
    ledger = open_ledger(f"sqlite:///{folder / 'my ledger.db'}")
    Ledger.from_handle(ledger.handle).reserve(guarantee(0.1))
    assert ledger.total().epsilon == Fraction(1, 10)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@db.example/confide",
        "postgresql://ann@db.example/other?password=s3cret",
        "postgresql://ann:x@db.example/third?sslpassword=s3cret",
    ],
)
def test_passwords_are_masked_everywhere(url):
    ledger = Ledger(url, "visits")
    shown = [repr(ledger), ledger.handle, str(ledger._store), ledger._store.location]
    assert not [text for text in shown if "s3cret" in text]
    assert b"s3cret" not in pickle.dumps(ledger)
    assert "ann:***@db.example" in repr(ledger)
    # In the process that was given the password, the unpickled handle finds it again.
    assert pickle.loads(pickle.dumps(ledger))._store is ledger._store


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ("sqlite://", UnsupportedError),
        ("sqlite:///:memory:", UnsupportedError),
        ("sqlite:///file:x?mode=memory&uri=true", UnsupportedError),
        ("mysql://host/db", UnsupportedError),
        ("no url", ParameterError),
        ("", ParameterError),
        (None, ParameterError),
    ],
)
def test_urls_that_name_no_durable_store(open_ledger, bad, error):
    with pytest.raises(error):
        open_ledger(bad)


@pytest.mark.parametrize("name", ["", " ", "a/b", "a#b", "x" * 201, "a\tb", "a\n", "\x1b[2J", "\ud800", 3])
def test_dataset_names(sqlite_url, open_ledger, name):
    with pytest.raises(ParameterError):
        open_ledger(sqlite_url, dataset=name)


def test_the_handle_and_the_dataset_must_agree(sqlite_url, open_ledger):
    with pytest.raises(ParameterError, match="Pass one"):
        open_ledger(sqlite_url + "#other")
    assert open_ledger(sqlite_url + "#visits").dataset == "visits"
