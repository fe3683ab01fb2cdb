"""Each pitfall that concerns the built rooms is a test: where it is, and those that span rooms.

Identifiers are those of the log of pitfalls in the design pages. Rows about certified prediction and the
service join when those rooms do.
"""

from __future__ import annotations

import ast
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import confide
from confide.errors import ConfideError
from confide.privacy import (
    Adjacency,
    Event,
    PLDAccountant,
    compose,
    exact,
    gaussian_delta,
    gaussian_sigma,
    noise_multiplier,
    split,
    zcdp_budget,
    zcdp_epsilon,
)

TESTS = Path(__file__).parent
WHERE = {
    "F01": "ledger/test_identity.py::test_a_clone_of_an_estimator_charges_the_one_ledger",
    "F02": "ledger/test_identity.py::test_two_joblib_workers_do_not_double_the_budget",
    "F03": "ledger/test_identity.py::test_of_two_threads_one_is_refused_before_it_reads",
    "F04": "ledger/test_races.py::test_eight_processes_of_eight_threads_never_overspend",
    "F05": "ledger/test_amounts.py::test_three_tenths_fit_and_a_fourth_does_not",
    "F06": "ledger/test_amounts.py::test_no_charge_of_a_bad_amount_even_without_limit",
    "F07": "training/test_front.py::test_neighbours_cost_and_answer_alike",
    "F08": "ledger/test_spending.py::test_reading_is_pure",
    "F09": "privacy/test_accountants.py::test_f09_a_full_batch_is_the_plain_gaussian",
    "F10": "privacy/test_accountants.py::test_f10_zero_is_right_below_the_total_variation",
    "F11": "privacy/test_accountants.py::test_f11_extreme_orders_are_there",
    "F12": "test_pitfalls.py::test_f12_every_calibration_is_on_the_safe_side",
    "F13": "test_pitfalls.py::test_f13_calibration_answers_over_a_wide_range",
    "F14": "test_pitfalls.py::test_f14_zero_and_infinity",
    "F15": "privacy/test_accountants.py::test_f15_tiny_budgets_stay_cheap",
    "F16": "privacy/test_accountants.py::test_bounded_range_only_for_the_exponential_mechanism",
    "F17": "privacy/test_composition.py::test_round_trip",
    "F18": "test_pitfalls.py::test_f18_f19_epsilon_is_the_total_of_the_call",
    "F19": "test_pitfalls.py::test_f18_f19_epsilon_is_the_total_of_the_call",
    "F20": "ledger/test_identity.py::test_best_of_k_runs_is_k_charges",
    "F21": "ledger/test_identity.py::test_parameters_are_plain_and_survive_saving",
    "F22": "test_pitfalls.py::test_f22_one_row_less_is_the_same_configuration",
    "F23": "test_pitfalls.py::test_f23_sampling_and_adjacency_are_one_event",
    "F24": "training/sgd/test_batches.py::test_each_row_and_each_pair_comes_with_its_probability",
    "F25": "training/sgd/test_engine.py::test_empty_batches_get_their_noise_and_count",
    "F26": "training/sgd/test_fit.py::test_weights_need_a_cap_and_cost_it",
    "F27": "test_pitfalls.py::test_f27_rows_of_one_person_cost_more_noise",
    "F28": "training/sgd/test_engine.py::test_the_mean_divides_by_a_public_constant",
    "F29": "privacy/test_accountants.py::test_no_noise_costs_infinity_or_is_refused",
    "F30": "training/sgd/test_sensitivity.py::test_a_row_moves_an_add_remove_batch_by_one_clip_norm",
    "F31": "training/sgd/test_engine.py::test_a_row_that_overflows_contributes_nothing_and_leaves_the_others_alone",
    "F32": "mechanisms/test_stream.py::test_children_are_distinct_and_do_not_depend_on_position",
    "F33": "training/sgd/test_fit.py::test_a_snapshot_that_the_run_left_behind_is_refused",
    "F34": "training/sgd/test_memory.py::test_no_step_holds_a_gradient_for_each_row",
    "F35": "schema/test_declarations.py::test_no_bounds_is_an_error_before_any_data_is_read",
    "F36": "training/test_closed_form.py::test_asymmetric_bounds_have_their_full_range",
    "F37": "schema/test_encode.py::test_a_wild_row_moves_a_sum_by_the_declared_width",
    "F38": "schema/test_encode.py::test_asymmetric_bounds_use_both_ends",
    "F39": "schema/test_sources.py::test_columns_that_are_all_missing_or_constant",
    "F40": "schema/test_sources.py::test_columns_that_are_all_missing_or_constant",
    "F41": "schema/test_encode.py::test_duplicate_and_collinear_columns_stay",
    "F42": "test_pitfalls.py::test_f42_one_odd_label_changes_no_path",
    "F43": "schema/test_cells.py::test_numbers",
    "F44": "schema/test_sources.py::test_every_frame_gives_the_same_table",
    "F45": "training/test_estimator.py::test_weights_are_refused_and_named",
    "F46": "training/test_closed_form.py::test_without_noise_and_weights_it_is_least_squares",
    "F47": "selection/test_law.py::test_scores_of_any_size_neither_overflow_nor_tie",
    "F48": "selection/test_draws.py::test_more_supports_than_int64",
    "F49": "selection/test_draws.py::test_the_partition_changes_time_never_the_law",
    "F50": "selection/test_scores.py::test_scores_against_a_second_solver",
    "F51": "selection/test_symmetric.py::test_every_subset_is_reachable",
    "F52": "selection/test_baselines.py::test_a_finite_chain_loses_more_than_its_stationary_law",
    "F53": "selection/test_outer.py::test_without_the_package_or_a_licence_nothing_is_computed",
    "F55": "training/labels/test_channel.py::test_the_number_of_labels_told_apart",
    "F56": "training/labels/test_channel.py::test_every_ratio_is_within_e_to_the_epsilon",
    "F57": "prediction/intervals/test_certificate.py::test_a_lost_level_loses_all_above_it_and_none_below",
    "F58": "prediction/test_response.py::test_f58_a_distance_of_zero_has_the_noise_of_global_sensitivity",
    "F59": "prediction/intervals/test_certificate.py::test_hashed_batches_depend_on_the_id_alone",
    "F60": "prediction/intervals/test_boxes.py::test_boxes_of_neighbours_are_nested_and_distances_differ_by_one_at_most",
    "F61": "prediction/test_response.py::test_f61_only_the_class_leaves_and_a_query_asked_again_is_charged_again",
    "F54": "selection/test_scores.py::test_size_limits_name_the_limit",
    "K05": "mechanisms/test_choice.py::test_neighbours_differ_by_e_epsilon_at_most_in_rationals",
    "K01": "mechanisms/test_grid.py::test_reachable_outputs_do_not_tell_true_values_apart",
    "K03": "mechanisms/test_grid.py::test_reachable_outputs_do_not_tell_true_values_apart",
    "K04": "mechanisms/test_grid.py::test_float32_order_of_summation_does_not_matter",
    "K06": "mechanisms/test_gaussian.py::test_extreme_bits_end_in_a_draw_or_a_clear_error",
    "K07": "training/test_audit.py::test_no_threshold_beats_the_claim",
    "K09": "training/test_closed_form.py::test_one_label_moves_the_statistic_by_at_most_its_sensitivity",
    "K12": "test_pitfalls.py::test_k12_every_mechanism_names_its_proof",
    "K14": "training/test_front.py::test_seeded_fits_are_refused_by_a_ledger",
    "K15": "schema/test_neighbours.py::test_the_same_error_for_neighbours",
}


@pytest.mark.parametrize("pitfall", WHERE)
def test_the_named_test_exists(pitfall):
    file, name = WHERE[pitfall].split("::")
    tree = ast.parse((TESTS / file).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    assert found, f"{pitfall}: {WHERE[pitfall]} is gone"
    checks = [node for node in ast.walk(found[0]) if isinstance(node, ast.Assert | ast.With)]
    calls = [node for node in ast.walk(found[0]) if isinstance(node, ast.Call)]
    assert checks or calls


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1, 9.5, 60])
def test_f12_every_calibration_is_on_the_safe_side(epsilon):
    delta = 1e-6
    # The evaluated curve is itself an upper bound, which wobbles by 1e-11; the 60-digit test is exact.
    assert gaussian_delta(epsilon, gaussian_sigma(epsilon, delta)) <= delta * (1 + 1e-10)
    assert zcdp_epsilon(zcdp_budget(epsilon, delta), delta) <= exact(epsilon)
    assert exact(compose(split(epsilon, delta, 77), 77, delta)) <= exact(epsilon)
    multiplier = noise_multiplier(epsilon, delta, steps=40, sampling_probability=0.1, adjacency="replace_one")
    event = Event.of(
        "poisson_gaussian", noise_multiplier=multiplier, sampling_probability=0.1, adjacency="replace_one"
    )
    assert PLDAccountant().compose(event, 40).epsilon(delta) <= exact(epsilon)


@pytest.mark.parametrize("epsilon", [0.001, 0.03, 12, 100, 500])
@pytest.mark.parametrize("delta", [0.3, 1e-12])
def test_f13_calibration_answers_over_a_wide_range(epsilon, delta):
    sigma = gaussian_sigma(epsilon, delta)
    assert 0 < sigma < math.inf
    assert gaussian_delta(epsilon, sigma * 0.999) > delta


def model(**changes):
    return confide.PrivateRegressor(
        **{"epsilon": 1, "delta": 1e-6, "target_bounds": (0, 1), "random_state": 0, **changes}
    )


X = np.random.default_rng(0).normal(size=(300, 3))


@pytest.mark.parametrize("batch", [None, 20])
def test_f22_one_row_less_is_the_same_configuration(batch):
    from confide.training.sgd import SGDRequest
    from confide.training.sgd.fitting import prepare

    request = SGDRequest(
        1,
        1e-6,
        "add_remove_one",
        target_bounds=(0, 1),
        private_bounds=[(-1, 1)] * 3,
        rows=120,
        batch_size=batch,
    )
    seen = []
    for n in (100, 99):
        ready = prepare(None, np.zeros((n, 3)), n, request)
        seen.append(
            (ready.accounting, ready.rows, ready.scale, ready.batch, ready.clip, ready.rates.tobytes())
        )
    assert seen[0] == seen[1]


def test_f14_zero_and_infinity():
    y = np.full(300, 0.5)
    with pytest.raises(ConfideError, match="epsilon"):
        model(epsilon=0).fit(X, y)
    with pytest.raises(ConfideError, match="nonprivate"):
        model(epsilon=math.inf).fit(X, y)
    fitted = model(epsilon=math.inf, nonprivate=True, random_state=None).fit(X, y)
    assert fitted.guarantee_.epsilon == math.inf


def test_f18_f19_epsilon_is_the_total_of_the_call(tmp_path):
    ledger = confide.Ledger.open(
        f"sqlite:///{tmp_path}/l.db", dataset="t", epsilon=2, delta=1e-5, adjacency="replace_label"
    )
    y = np.clip(X[:, 0] / 6 + 0.5, 0, 1)
    fitted = model(epsilon=0.7, fit_intercept=True, ledger=ledger, random_state=None).fit(X, y)
    assert fitted.guarantee_.epsilon == Fraction(7, 10)
    assert ledger.total().epsilon == Fraction(7, 10)
    # The pieces inside the event, composed by an independent accountant, stay within the total.
    spent = PLDAccountant().compose(fitted.guarantee_.event).epsilon(1e-6)
    assert spent <= Fraction(7, 10) * (1 + Fraction(1, 10**9))


def test_f23_sampling_and_adjacency_are_one_event():
    # Removing a row and replacing one cost differently, and the event carries which was accounted.
    removed = noise_multiplier(1, 1e-6, steps=980, sampling_probability=0.02048, adjacency="add_remove_one")
    for adjacency in (Adjacency.REPLACE_ONE, Adjacency.REPLACE_LABEL, Adjacency.REPLACE_PRIVATE_PART):
        replaced = noise_multiplier(1, 1e-6, steps=980, sampling_probability=0.02048, adjacency=adjacency)
        assert replaced > 1.8 * removed
    with pytest.raises(ConfideError, match="adjacency"):
        PLDAccountant().compose(Event.of("poisson_gaussian", noise_multiplier=1.0, sampling_probability=0.1))


def test_f27_rows_of_one_person_cost_more_noise():
    y = np.clip(X[:, 0] / 6 + 0.5, 0, 1)
    one, four = model().fit(X, y), model(max_rows_per_person=4).fit(X, y)
    assert four.result_.statistics.sensitivity == pytest.approx(
        4 * one.result_.statistics.sensitivity, rel=0.01
    )


@pytest.mark.parametrize("odd", [1.0, math.nan, math.inf, -1e308])
def test_f42_one_odd_label_changes_no_path(odd):
    constant, other = np.zeros(300), np.zeros(300)
    other[17] = odd
    outcomes = [model().fit(X, y) for y in (constant, other)]
    assert outcomes[0].guarantee_ == outcomes[1].guarantee_
    assert outcomes[0].result_.status is outcomes[1].result_.status


def test_k12_every_mechanism_names_its_proof():
    import inspect

    from confide import mechanisms

    sources = ("Canonne", "Balle", "Ghosh", "Dwork", "Lyu", "verbatim", "Higham", "exact")
    for name in ("rounded_gaussian", "discrete_gaussian", "discrete_laplace", "bernoulli_exp", "weighted_choice",
                 "gaussian_release", "laplace_release"):  # fmt: skip
        text = inspect.getdoc(getattr(mechanisms, name)) or ""
        module = inspect.getdoc(inspect.getmodule(getattr(mechanisms, name))) or ""
        assert any(source in text + module for source in sources), name
