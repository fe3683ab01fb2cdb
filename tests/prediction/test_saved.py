"""Certified models in one file: the same answers after it, and nothing else is taken from it."""

import ast
import json
import os
import pickle
import stat
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import confide
from confide.errors import DataError, ParameterError, UnsupportedError
from confide.ledger import Ledger
from confide.prediction import (
    BallTraining,
    CertifiedClassifier,
    CertifiedModel,
    Ensemble,
    HashedBatches,
    IntervalTraining,
    Persons,
    StronglyConvexERM,
    TeacherVotes,
    VoteGap,
    saved,
    states,
)
from confide.prediction.intervals.hybrid import HybridTraining

from .helpers import blobs  # isort: skip
from .test_certify import ROWS, frame, schema, table, visits  # isort: skip

GENTLE = {"learning_rate": 1.0, "clip": 0.1}
FAR = {"adjacency": "add_remove_one"}
OPTIONS = [
    {}, {"model": "softmax"}, {"model": "huber_hinge"}, {"ridge": 5.0, **FAR}, {"certificate": "votes"},
    {"certificate": "ball"}, {"certificate": "interval"}, {"certificate": "interval", "model": "mlp", "k_max": 4, "hidden": (3,)},
    {"certificate": "interval", "max_rows": 900, **FAR}, {"members": 3, "ridge": 4.0},
    {"certificate": "votes", "members": 2, "neighbours": 9},
    {"certificate": BallTraining(6, {**GENTLE, "clip_by": "norm"}, 2.0)},
    {"certificate": HybridTraining((6, 3, 1), {**GENTLE, "clip_by": "norm"}, 3)},
    {"certificate": Ensemble(IntervalTraining((6, 2), GENTLE, 5), 2)},
    {"certificate": IntervalTraining((6, 1), {**GENTLE, "epochs": 2}, 20, levels="bisect", batches=3)},
    {"certificate": IntervalTraining((6, 1), GENTLE, 20, levels="bisect", batches=HashedBatches(2, 300), public=(np.zeros((4, 6)), [0, 1, 0, 1]), **FAR)},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: str(options)[:60])
def test_answers_are_the_same_bit_for_bit(tmp_path, options):
    model = confide.certify(table(), random_state=1, **options)
    rows = frame(150, seed=3)
    model.save(tmp_path / "model.npz")
    read = CertifiedModel.load(tmp_path / "model.npz")
    assert read is not model
    for before, after in zip(model.stability(rows), read.stability(rows), strict=True):
        assert np.array_equal(before, after)
        assert before.dtype == after.dtype
    for terms in ((1,), (0.1,), (8, 1e-6, "sparse_vector")):
        told, again = model.answer(rows, *terms), read.answer(rows, *terms, random_state=1)
        assert np.array_equal(np.ma.getmaskarray(told), np.ma.getmaskarray(again))
        assert np.array_equal(np.ma.getdata(told), np.ma.getdata(again))
        assert model.guarantee == read.guarantee
    assert read.schema == model.schema
    assert read.provenance == json.loads(json.dumps(model.provenance))
    assert (read.adjacency, read.unit, read.classes.tolist()) == (model.adjacency, model.unit, ["no", "yes"])
    read.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes()[:2] == b"PK"
    assert np.array_equal(
        CertifiedModel.load(tmp_path / "again.npz").stability(rows)[1], model.stability(rows)[1]
    )


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("members", [1, 2])
def test_persons_are_stored_too(tmp_path, adjacency, members):
    model = confide.certify(table(visits(3), ids=3), adjacency=adjacency, ridge=5.0, members=members)
    model.save(tmp_path / "m.npz")
    read = CertifiedModel.load(tmp_path / "m.npz")
    assert read.unit == "person"
    assert np.array_equal(read.stability(ROWS)[1], model.stability(ROWS)[1])


def test_the_file_is_for_its_owner_and_replaced_as_a_whole(tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    path.write_text("something of before")
    os.chmod(path, 0o644)
    old = os.umask(0)
    try:
        confide.certify(table()).save(path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()

    def fails(file, **members):
        file.write(b"PK half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saved.np, "savez", fails)
    with pytest.raises(ParameterError, match="No space left"):
        confide.certify(table()).save(path)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["model.npz"]


def test_folders_that_do_not_exist(tmp_path):
    for path in (tmp_path / "none" / "m.npz", tmp_path):
        with pytest.raises(ParameterError, match="cannot be written"):
            confide.certify(table()).save(path)
    assert list(tmp_path.iterdir()) == []


def test_no_ledger_and_no_noise_seed_are_stored(tmp_path):
    url = f"sqlite:///{tmp_path}/l.db"
    book = Ledger.open(url, dataset="hush-hush", epsilon=3, delta=0, adjacency="replace_one")
    model = confide.certify(table(), ledger=book)
    model.save(tmp_path / "m.npz")
    raw = b"".join(
        zipfile.ZipFile(tmp_path / "m.npz").read(n) for n in zipfile.ZipFile(tmp_path / "m.npz").namelist()
    )
    assert b"hush-hush" not in raw
    assert b"l.db" not in raw
    read = CertifiedModel.load(tmp_path / "m.npz")
    assert read.ledger is None
    assert read.random_state is None
    read.answer(ROWS, 1)
    assert read.guarantee.assumptions == ("unrecorded",)
    CertifiedModel.load(tmp_path / "m.npz", ledger=f"{url}#hush-hush").answer(ROWS, 1)
    assert book.total().epsilon == 2


@pytest.fixture
def path(tmp_path):
    confide.certify(table()).save(tmp_path / "m.npz")
    return tmp_path / "m.npz"


def test_files_cut_short_are_refused(path):
    whole = path.read_bytes()
    for size in (0, 1, 2, 30, 500, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"damaged|no certified model"):
            CertifiedModel.load(path)


def test_files_with_a_changed_byte_are_refused(path):
    whole = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 200).tolist():
        changed = whole.copy()
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        try:
            read = CertifiedModel.load(path)
        except DataError:
            continue
        # Some bytes of a zip say nothing: times, attributes. The model is then the one that was saved.
        assert np.array_equal(read.stability(ROWS)[1], confide.certify(table()).stability(ROWS)[1])


def rewritten(path, change, *, honest=True):
    """Write the file with a changed header, and the digest of it or the old one."""
    with np.load(path) as held:
        members = {name: held[name] for name in held.files}
    header = json.loads(members["header"].tobytes())
    change(header)
    text = json.dumps(header).encode()
    arrays = [members[f"a{i}"] for i in range(len(members) - 2)]
    members["header"] = np.frombuffer(text, dtype=np.uint8)
    if honest:
        members["digest"] = np.frombuffer(saved.digest(text, arrays), dtype=np.uint8)
    np.savez(path, **members)


def test_the_digest_covers_header_and_arrays(path):
    rewritten(
        path,
        lambda header: header["model"]["fields"]["certificate"]["fields"].update(ridge=9.0),
        honest=False,
    )
    with pytest.raises(DataError, match="damaged"):
        CertifiedModel.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [(lambda h: h.update(version=2), "version 2 .* newer one"), (lambda h: h.update(format="other"), "no certified model"),
     (lambda h: h["model"].update(type="Weapon"), "'Weapon'.* newer one"),
     (lambda h: h["model"].update(type="os.system"), "does not know"),
     (lambda h: h["model"]["fields"].update(more=1), "do not fit"),
     (lambda h: h["model"]["fields"].pop("weights"), "do not fit"),
     (lambda h: h["model"]["fields"].update(weights={"array": 99}), "do not fit"),
     (lambda h: h["model"]["fields"].update(weights={"code": "1"}), "do not fit"),
     (lambda h: h.pop("classes"), "do not fit"), (lambda h: h.update(schema={"columns": {}}), "schema|do not fit"),
     (lambda h: h.update(adjacency="rows"), "do not fit")],
)  # fmt: skip
def test_headers_that_say_something_else(path, change, message):
    rewritten(path, change)
    with pytest.raises((DataError, confide.errors.SchemaError), match=message):
        CertifiedModel.load(path)


@pytest.mark.parametrize(
    "change",
    [lambda h: h.update(marks=["certificate"]), lambda h: h.update(marks={"certificate": ["erm"]}),
     lambda h: h.update(provenance="x"), lambda h: h.update(columns="6"), lambda h: h.update(columns=1e400),
     lambda h: h.update(unit=3), lambda h: h.update(names=3), lambda h: h.update(names=[["a"]]),
     lambda h: h.update(shell={"map": []}), lambda h: h.update(shell=[1]), lambda h: h.update(model=None),
     lambda h: h.update(model={"type": ["x"], "fields": {}}), lambda h: h.update(model={"type": "UnitRows"}),
     lambda h: h.update(model={"number": "1"}), lambda h: h.update(model={"array": 0}),
     lambda h: h.update(model={"array": 10**30}), lambda h: h.update(schema=[1]), lambda h: h.update(adjacency=[]),
     lambda h: h["classes"].update(type="O"), lambda h: h["classes"].update(type="<U2000000000"),
     lambda h: h["classes"].update(values=["a", ["b"]]), lambda h: h["classes"].update(values=5),
     lambda h: h["model"].update(type="Network"),
     lambda h: h.update(model={"type": "IntervalTraining", "fields": {"layers": {"tuple": [10**9, 10**9]}, "hyperparameters": {"map": {"learning_rate": 1.0, "clip": 1.0}}, "k_max": 1}})],
)  # fmt: skip
def test_parts_of_another_type_or_size_are_refused(path, change):
    rewritten(path, change)
    with pytest.raises((DataError, confide.errors.SchemaError)):
        CertifiedModel.load(path)
    with pytest.raises((DataError, confide.errors.SchemaError)):
        CertifiedClassifier.load(path)


@pytest.mark.parametrize(
    "deep", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000, "9" * 10_000]
)
@pytest.mark.parametrize("where", ["header", "model"])
def test_a_deep_header_is_no_recursion_error(path, deep, where):
    with np.load(path) as held:
        members = {name: held[name] for name in held.files}
    text = members["header"].tobytes().decode()
    text = deep if where == "header" else text.replace('"shell": null', f'"shell": {deep}')
    arrays = [members[f"a{i}"] for i in range(len(members) - 2)]
    members["header"] = np.frombuffer(text.encode(), dtype=np.uint8)
    members["digest"] = np.frombuffer(saved.digest(text.encode(), arrays), dtype=np.uint8)
    np.savez(path, **members)
    with pytest.raises(DataError):
        CertifiedModel.load(path)


def test_a_shallow_limit_of_the_unpacker_is_met_by_a_data_error():
    data = 1.0
    for _ in range(5000):
        data = [data]
    with pytest.raises(DataError, match="do not fit"):
        states.unpack(data, [])


def with_member(path, name, raw, kind=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path) as held:
        members = {member: held.read(member) for member in held.namelist()}
    with zipfile.ZipFile(path, "w", kind) as file:
        for member, bytes_ in {**members, name: raw}.items():
            file.writestr(member, bytes_)


@pytest.mark.parametrize("shape", ["(10000000000000,)", "(3, 10000000000000)", "(-1,)", "(-2, -3)", "(1" + "0" * 400 + ",)",
                                   "(0, 1" + "0" * 40 + ")", "(" * 3000 + ")" * 3000, "'x'"], ids=lambda shape: shape[:20])  # fmt: skip
@pytest.mark.parametrize("name", ["a0.npy", "header.npy", "digest.npy"])
def test_shapes_are_believed_only_with_their_bytes(path, name, shape):
    """Audited: an array of 10^13 numbers was asked for before the digest was compared."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    with_member(path, name, b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(48))
    tracemalloc.start()
    with pytest.raises(DataError, match="damaged"):
        CertifiedModel.load(path)
    assert tracemalloc.get_traced_memory()[1] < 50 * path.stat().st_size + 10**6
    tracemalloc.stop()


def test_packed_archives_and_overlapping_members_are_refused(path):
    whole = path.read_bytes()
    with_member(path, "a0.npy", bytes(10**8), zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 10**6
    with pytest.raises(DataError, match="damaged"):
        CertifiedModel.load(path)
    # Every entry of the directory claims the whole file: a sum above the file's size.
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("header.npy", whole)
        file.writestr("digest.npy", b"")
        file.filelist[1].file_size = file.filelist[1].compress_size = len(whole)
        file.filelist[1].header_offset = 0
    with pytest.raises(DataError, match="damaged"):
        CertifiedModel.load(path)


def test_arrays_come_back_in_their_order(tmp_path):
    for array in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.zeros((0, 4)),
                  np.array(2.5), np.array([True, False]), np.arange(3, dtype=">i4"), np.zeros((2, 0), np.uint64)):  # fmt: skip
        np.savez(tmp_path / "x.npz", a=array)
        with zipfile.ZipFile(tmp_path / "x.npz") as held:
            back = saved._array(held.read("a.npy"))
        assert back.dtype == array.dtype
        assert back.flags.f_contiguous == array.flags.f_contiguous
        assert back.flags.writeable
        np.testing.assert_array_equal(back, array)


def test_other_files_are_refused_and_nothing_is_executed(tmp_path):
    ran = []

    class Trap:
        def __reduce__(self):
            return ran.append, (1,)

    path = tmp_path / "x.npz"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match="no certified model"):
        CertifiedModel.load(path)
    np.savez(path, header=np.array([Trap()], dtype=object), digest=np.zeros(1))
    with pytest.raises(DataError):
        CertifiedModel.load(path)
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(DataError, match="no certified model"):
        CertifiedModel.load(path)
    path.write_text(json.dumps({"format": "confide-linear-model/1"}))
    with pytest.raises(DataError, match="no certified model"):
        CertifiedModel.load(path)
    with pytest.raises(DataError, match="no file"):
        CertifiedModel.load(tmp_path / "none.npz")
    with pytest.raises(DataError, match="no file"):
        CertifiedModel.load(tmp_path)
    assert ran == []


def test_foreign_objects_cannot_be_saved(tmp_path):
    teachers = TeacherVotes(LogisticRegression(), 3, 2, (-1, 1))
    mapped = IntervalTraining((6, 1), GENTLE, 5, features=lambda X: X)
    for certificate in (teachers, mapped):
        model = confide.certify(table(), certificate=certificate)
        assert model.answer(ROWS, 1).shape == (2,)
        with pytest.raises(UnsupportedError, match="pickle"):
            model.save(tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


def test_every_stored_class_is_there():
    for name in states.KNOWN:
        assert states._class_of(name).__name__ == name


def test_values_come_back_as_they_were():
    values = (1, True, None, "text", 0.1, float("inf"), [1, (2,)], {"a": np.float64(0.5)}, 5e-324, -0.0)
    arrays = []
    read = states.unpack(json.loads(json.dumps(states.pack(values, arrays))), arrays)
    assert repr(read) == repr((1, True, None, "text", 0.1, float("inf"), [1, (2,)], {"a": 0.5}, 5e-324, -0.0))


# ---- the scikit-learn shell -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"certificate": "votes", "neighbours": 9}, {"certificate": "interval", "training_seed": 4},
     {"certificate": "ball"}, {"certificate": VoteGap(9, 2, (-1, 1)), "feature_bounds": None}, {"feature_bounds": (-np.ones(3), np.ones(3)), "alpha": 0.5}],
    ids=lambda options: str(options)[:60],
)  # fmt: skip
@pytest.mark.parametrize("classes", [["no", "yes"], [0, 1], [False, True], [0.5, 1.5]], ids=str)
def test_the_classifier_uses_the_same_piece(tmp_path, options, classes):
    X, y = blobs(200, p=3, seed=1)
    options = {"feature_bounds": (-1, 1), **options}
    model = CertifiedClassifier(classes, random_state=2, **options).fit(X, np.array(classes)[y])
    model.save(tmp_path / "m.npz")
    read = CertifiedClassifier.load(tmp_path / "m.npz")
    assert np.array_equal(read.stability(X)[1], model.stability(X)[1])
    told = model.answer(X, 1)
    read.set_params(random_state=2)
    assert np.array_equal(read.answer(X, 1), told)
    assert read.classes_.dtype == model.classes_.dtype
    assert read.n_features_in_ == 3
    assert read.guarantee_ == model.guarantee_
    again = clone(read).fit(X, np.array(classes)[y])
    assert np.array_equal(again.stability(X)[1], model.stability(X)[1])
    bare = CertifiedModel.load(tmp_path / "m.npz")
    assert np.array_equal(bare.answer(X, 1, random_state=2), told)
    assert bare.schema is None


def test_names_of_columns_travel(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = blobs(100, p=2, seed=3)
    frame_ = pd.DataFrame(X, columns=["a", "b"])
    CertifiedClassifier([0, 1], (-1, 1)).fit(frame_, y).save(tmp_path / "m.npz")
    read = CertifiedClassifier.load(tmp_path / "m.npz")
    assert list(read.feature_names_in_) == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        read.stability(frame_[["b", "a"]])


def test_a_classifier_of_persons(tmp_path):
    X, y = blobs(300, p=2, seed=3)
    ids = np.arange(300) // 3
    model = CertifiedClassifier([0, 1], (-1, 1), alpha=0.03, max_rows_per_id=3).fit(X, y, ids=ids)
    assert model.preview(1, 1).unit == "person"
    rows = CertifiedClassifier([0, 1], (-1, 1), alpha=0.03).fit(X, y)
    assert np.array_equal(model.stability(X)[1], rows.stability(X)[1] // 3)
    model.save(tmp_path / "m.npz")
    assert np.array_equal(CertifiedClassifier.load(tmp_path / "m.npz").stability(X)[1], model.stability(X)[1])
    with pytest.raises(ParameterError, match="ids"):
        CertifiedClassifier([0, 1], (-1, 1), max_rows_per_id=3).fit(X, y)
    own = Persons(StronglyConvexERM(5.0), 3)
    assert CertifiedClassifier([0, 1], certificate=own).fit(X, y, ids=ids).preview(1, 1).unit == "person"


def test_a_model_of_a_table_is_no_classifier(path):
    with pytest.raises(DataError, match="model of a table"):
        CertifiedClassifier.load(path)


@pytest.mark.parametrize(
    "rows", [{"a": [1.0], "b": [2.0]}, [{"a": 1.0, "b": 2.0}], "rows.csv", Path("rows.csv")]
)
def test_the_model_of_a_classifier_names_no_columns(tmp_path, rows):
    X, y = blobs(100, p=2, seed=3)
    CertifiedClassifier([0, 1], (-1, 1)).fit(X, y).save(tmp_path / "m.npz")
    model = CertifiedModel.load(tmp_path / "m.npz")
    assert model.answer([[0.1, 0.2]], 1).shape == (1,)
    with pytest.raises(DataError, match="fitted on arrays and has no schema"):
        model.answer(rows, 1)


def test_classes_without_a_stored_form(tmp_path):
    X, y = blobs(60, p=2, seed=3)
    classes = np.array([None, "yes"], dtype=object)
    model = CertifiedClassifier(classes, (-1, 1)).fit(X, classes[y])
    with pytest.raises(UnsupportedError, match="Classes of type object"):
        model.save(tmp_path / "m.npz")


def test_schema_travels_with_its_terms(path):
    assert CertifiedModel.load(path).schema.to_dict() == confide.Schema.from_dict(schema()).to_dict()


def test_every_fitted_object_is_stored_or_refused():
    """Whoever adds a class with `stability` adds it to `states.KNOWN`, or here with its reason."""
    room = Path(confide.prediction.__file__).parent
    left_out = {
        "Teachers": "scikit-learn objects: no way without pickle",
        "Certified": "the protocol",
        "CertifiedModel": "what is saved",
        "CertifiedClassifier": "saves a CertifiedModel",
    }
    found = set()
    for path in room.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                names = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
                found |= {node.name} if "stability" in names else set()
    assert found - set(states.KNOWN) == set(left_out)
