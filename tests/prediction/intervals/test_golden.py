"""The cases of the reference: boxes no wider, centred on the same model, the same or more certified."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from confide.prediction.intervals import train_intervals

CASES = ["blobs_lr", "blobs_mlp16", "digits38_lr_bce_sgdm"]
BLOBS = {
    "learning_rate": 2.0, "n_epochs": 1, "lr_decay": 0.6, "lr_min": 0.001, "clip_gamma": 0.06, "clip_method": "clamp",
    "l2_reg": 0.0, "optimizer": "SGD", "optimizer_kwargs": {}, "loss": "cross_entropy",
}  # fmt: skip
SETTINGS = {
    "blobs_lr": ([6, 2], BLOBS),
    "blobs_mlp16": ([6, 16, 2], {**BLOBS, "n_epochs": 2}),
    "digits38_lr_bce_sgdm": (
        [64, 1],
        {**BLOBS, "learning_rate": 1.0, "n_epochs": 4, "lr_decay": 0.5, "lr_min": 0.0, "clip_gamma": 0.03,
         "optimizer": "SGDM", "optimizer_kwargs": {"momentum": 0.9, "nesterov": True},
         "loss": "binary_cross_entropy"},
    ),
}  # fmt: skip


def load(golden, name):
    folder = golden / "prediction"
    found = [folder / f"{name}{end}.npz" for end in ("_full", "_extract", "")]
    return np.load(next(path for path in found if path.exists()))


@pytest.mark.parametrize("name", CASES)
def test_golden_boxes_and_distances(golden, name):
    case = load(golden, name)
    layers, settings = SETTINGS[name]
    ks = case["ks"]
    ours = train_intervals(
        case["batch0_x"], case["batch0_y"], layers, case["init"], settings, range(ks[-1] + 1), "replace_one"
    )
    lower, upper = ours.lower[ks], ours.upper[ks]
    np.testing.assert_allclose(ours.nominal, case["param_n"], rtol=0, atol=1e-12)
    assert (ours.lower <= ours.nominal).all()
    assert (ours.nominal <= ours.upper).all()
    assert (upper - lower <= (1 + 1e-9) * (case["param_u"] - case["param_l"])).all()
    if len(layers) == 2:  # no products of boxes: the same bounds
        np.testing.assert_allclose(lower, case["param_l"], rtol=0, atol=1e-12)
        np.testing.assert_allclose(upper, case["param_u"], rtol=0, atol=1e-12)
    labels, k = ours.stability(case["queries"])
    np.testing.assert_array_equal(labels, ours.labels(case["queries"]))
    if len(layers) == 2:
        np.testing.assert_array_equal(k, case["certified_k"])
    else:
        assert (k >= case["certified_k"]).all()
        assert (k > case["certified_k"]).mean() > 0.5  # end-point products pay


def test_golden_settings_are_the_ones_of_the_index(golden):
    index = golden / "prediction" / "index.json"
    if not index.exists():
        pytest.skip("the copies have no index")
    for case in json.loads(index.read_text())["cases"]:
        layers, settings = SETTINGS[case["name"].removesuffix("_full")]
        assert case["hyperparameters"] == settings
        assert [[b, a] for a, b in itertools.pairwise(layers)] == case["param_shapes"][::2]
