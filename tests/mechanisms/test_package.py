from __future__ import annotations

import subprocess
import sys

import pytest

import confide.mechanisms as mechanisms


def test_import_is_cheap() -> None:
    code = (
        "import sys, confide.mechanisms as m; "
        "heavy = [n for n in ('numba', 'scipy', 'mpmath', 'opendp') if n in sys.modules]; "
        "assert not heavy, heavy; m.gaussian_release; m.weighted_choice; m.sparse_vector; "
        "heavy = [n for n in ('numba', 'scipy', 'mpmath', 'opendp') if n in sys.modules]; assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_drawing_needs_neither_mpmath_nor_opendp_nor_scipy() -> None:
    code = (
        "import sys; sys.modules['mpmath'] = sys.modules['opendp'] = None; import confide.mechanisms as m; "
        "m.rounded_gaussian(2.0**45, 1.0, 10); m.discrete_gaussian(3, 10); m.discrete_laplace(3, 10); "
        "m.weighted_choice(log_weights=[0.0, 1.0]); m.sparse_vector(1, 1e-6).above(100)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_resolves() -> None:
    for name in mechanisms.__all__:
        assert callable(getattr(mechanisms, name))
    assert set(mechanisms.__all__) == set(dir(mechanisms))
    with pytest.raises(AttributeError):
        mechanisms.nothing  # noqa: B018


@pytest.mark.parametrize("draw", ["gaussian", "laplace", "normal", "choice", "bernoulli"])
def test_a_seed_repeats_and_the_system_does_not(draw: str) -> None:
    calls = {
        "gaussian": lambda s: mechanisms.discrete_gaussian(1000, 50, stream=s),
        "laplace": lambda s: mechanisms.discrete_laplace(1000, 50, stream=s),
        "normal": lambda s: mechanisms.rounded_gaussian(1000, 1, 50, stream=s),
        "choice": lambda s: mechanisms.weighted_choice([1] * 1000, size=50, stream=s),
        "bernoulli": lambda s: mechanisms.bernoulli_exp(0.69, 200, stream=s),
    }
    call = calls[draw]
    first, second = call(mechanisms.seeded_stream(1)), call(mechanisms.seeded_stream(1))
    assert (first == second).all()
    assert (call(None) != call(None)).any()
    assert (first != call(mechanisms.seeded_stream(1).child("other"))).any()


def test_a_seeded_release_shows_the_exact_difference() -> None:
    """K14: why a seeded stream is never certified."""
    import numpy as np

    released = [
        mechanisms.gaussian_release(
            mechanisms.Statistic(np.array([value]), 1.0, 1.0, "x"), 100.0, stream=mechanisms.seeded_stream(7)
        )[0]
        for value in (0, 1)
    ]
    assert released[1] - released[0] == 1
    assert not mechanisms.seeded_stream(7).certified
