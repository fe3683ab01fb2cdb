"""What prediction_paper.py found, as Markdown: tables, and every claim checked from the CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

from _common import header
from _prediction_paper_cells import (
    ANSWERS,
    BINARY,
    CLASSES,
    EPOCH_GRID,
    MEMBERS,
    QUERIES,
    RELEASES,
    RIDGES,
    STEPS,
    TOTALS,
)
from _prediction_paper_table import CERTIFICATES, RELEASE_NAMES, Row, Table


def report(path: Path, folder: Path) -> None:
    """Write the report."""
    import prediction_paper

    table = Table(path)
    about = " ".join(prediction_paper.__doc__.split("\n\n")[-1].split())
    parts = [
        "# Private answers on ten sets",
        header("scikit-learn", "joblib"),
        f"`python benchmarks/prediction_paper.py`. {about}",
        _claims(table),
        _sets(table),
        _answers(table),
        _budget(table),
        _sparse(table),
        _ensembles(table),
        _steps(table),
        _lost(table),
    ]
    text = "\n\n".join(part for part in parts if part) + "\n"
    (folder / "prediction_paper.md").write_text(text, encoding="utf-8")
    print("prediction_paper.md")


def verdict(met: bool) -> str:
    return "met" if met else "**not met**"


def _claims(table: Table) -> str:
    lines = ["## Claims", "", "| claim | measured | |", "|---|---|---|"]
    for checks in (_blobs, _needs, _prices, _real, _multistep, _paper):
        lines += [f"| {claim} | {found} | {state} |" for claim, found, state in checks(table)]
    return "\n".join(lines)


Check = tuple[str, str, str]


def _blobs(table: Table) -> Iterator[Check]:
    """Issue 6 on Blobs."""
    names = [n for n in CERTIFICATES if n in table.certificates("budget", "blobs")]

    def every(release: str, queries: int) -> str:
        cases = [(n, table.get("budget", "blobs", n, release, 10.0, queries)) for n in names]
        return ", ".join(
            f"{CERTIFICATES[n]}: {_short(row)}" for n, row in cases if math.isfinite(row.accuracy)
        )

    for release, queries, limit in (
        ("response", 100, 0.999),
        ("response", 10_000, 0.99),
        ("sparse_vector", 100_000, 0.99),
    ):
        name, row = table.best("budget", "blobs", release, 10.0, queries)
        extra = (
            "; ten epochs, unstable ones answered by a class at random" if release == "sparse_vector" else ""
        )
        if name != "none":
            yield (
                f"Blobs, (10, 1e-5), Q = {queries:,}, {RELEASE_NAMES[release]}: at least {limit}{extra}",
                every(release, queries), verdict(row.accuracy >= limit),
            )  # fmt: skip
    cases = [(n, table.get("drawn", "blobs", n, "sparse_vector", 10.0, 100_000)) for n in names]
    cases = [(n, row) for n, row in cases if math.isfinite(row.accuracy)]
    if cases:
        yield (
            "The same with `StableAnswers` itself, each epoch charged as it opens, 40 times a run: at least 0.99",
            ", ".join(
                f"{CERTIFICATES[n]} {row} ({row.number('inside'):.4f} answered as stable)" for n, row in cases
            ),
            verdict(max(row.accuracy for _, row in cases) >= 0.99),
        )
    row = table.get("budget", "blobs", "boxes random start", "cauchy", 10.0, 100)
    if math.isfinite(row.accuracy):
        yield (
            "The paper's mechanism there: 0.931 on the same k",
            f"Cauchy: {every('cauchy', 100)}; Laplace: {every('laplace', 100)}",
            "the issue names neither the rows nor the start, and both matter: here 1,600 rows, a start of its own for "
            "each run",
        )


def _short(row: Row) -> str:
    return f"{row.accuracy:.4f}" + (f" ± {row.error:.4f}" if row.error > 5e-4 else "")


def _needs(table: Table) -> Iterator[Check]:
    """Distances from which an answer errs below 1 %."""
    from confide.prediction import release_of

    def need_of(release: str, epsilon: float, delta: float) -> int:
        return int((release_of(release, epsilon, 2, delta).probabilities(4_000) >= 0.99).argmax())

    for epsilon, aims in ((0.1, (39, 495, 1234, 295)), (1.0, (4, 36, 68, 29))):
        found = []
        for release in ("response", "cauchy", "laplace", "ptr"):
            delta = 0.0 if release in ("response", "cauchy") else 1e-5
            found.append(need_of(release, epsilon, delta))
        close = all(abs(a - b) <= 0.03 * b for a, b in zip(found[:2], aims[:2]))
        yield (
            f"k for under 1 % error at epsilon = {epsilon:g}: {aims[0]} (response), {aims[1]} (Cauchy), {aims[2]} (Laplace), {aims[3]} (ptr)",
            f"{', '.join(map(str, found))} with delta = 1e-5 for the last two (the claim names no delta)",
            f"{verdict(close)} for the first two; the response needs least: {verdict(found[0] == min(found))}",
        )  # fmt: skip


def _prices(table: Table) -> Iterator[Check]:
    from confide.prediction import per_answer

    aims = {10: 1.0, 100: 0.204, 10_000: 0.0200}
    found = {count: per_answer(10, 1e-5, count) for count in aims}
    yield (
        "Epsilon of an answer within (10, 1e-5): 1.0 for Q = 10, 0.204 for 100, 0.0200 for 10,000",
        ", ".join(f"{value:.4f}" for value in found.values()),
        verdict(all(abs(found[c] - aims[c]) <= 0.005 * aims[c] for c in aims)),
    )


def _real(table: Table) -> Iterator[Check]:
    """Breast cancer and digits at epsilon 0.3 and 1; the response against all others."""
    for data in ("breast", "digits 3-8"):
        for epsilon in (0.3, 1.0):
            name, row = table.best("answers", data, "response", epsilon)
            own = table.get("answers", data, "erm", "response", epsilon)
            if math.isfinite(own.accuracy):
                others = ", ".join(
                    f"{release} {table.get('answers', data, 'erm', release, epsilon).accuracy:.3f}"
                    for release in ("cauchy", "laplace", "ptr", "global")
                )
                yield (
                    f"{data}, epsilon = {epsilon:g} an answer: the response beats the other releases (ERM, each at its own Lambda)",
                    f"{own} (others: {others}); best certificate in hindsight: {CERTIFICATES[name]} {row}; DP-SGD at the "
                    f"same epsilon once: {table.trained(data, 'dpsgd', epsilon)}",
                    verdict(all(own.accuracy >= table.get("answers", data, "erm", r, epsilon).accuracy
                                for r in ("cauchy", "laplace", "ptr", "global"))),
                )  # fmt: skip
    total, won, lost = 0, 0, []
    for study, epsilons, counts in (("answers", ANSWERS, (1,)), ("budget", TOTALS, QUERIES)):
        for data in table.sets(study):
            for certificate in table.certificates(study, data):
                for epsilon in epsilons:
                    for count in counts:
                        mine = table.get(study, data, certificate, "response", epsilon, count)
                        rest = {r: table.get(study, data, certificate, r, epsilon, count).accuracy
                                for r in ("ptr", "cauchy", "laplace", "global")}  # fmt: skip
                        known = {r: v for r, v in rest.items() if math.isfinite(v)}
                        if not known or not math.isfinite(mine.accuracy):
                            continue
                        top = max(known, key=lambda r: known[r])
                        total += 1
                        won += mine.accuracy >= known[top] - 1e-9
                        if mine.accuracy < known[top] - 0.005:
                            lost.append(
                                f"{data}, {certificate}, {study} {epsilon:g}, Q {count:,}: {mine.accuracy:.3f} against {top} {known[top]:.3f}"
                            )
    if total:
        some = "; ".join(lost[:6]) + (f"; and {len(lost) - 6} more" if len(lost) > 6 else "")
        yield (
            "The response is at least as good as every other release of single answers, but for 0.005",
            f"at least as good in {won} of {total} cells; behind by more than 0.005 in {len(lost)}{': ' + some if some else ''}",
            verdict(not lost),
        )


def _multistep(table: Table) -> Iterator[Check]:
    """The largest median k among the settings whose model has accuracy >= 0.95."""
    families: dict[str, Callable[[str], list[tuple[str, Row]]]] = {
        "boxes": lambda data: [
            (f"steps: {n}", table.get("steps", data, f"boxes {n}", "response", 1.0)) for n in STEPS
        ],
        "boxes, more than one step": lambda data: [
            (f"steps: {n}", table.get("steps", data, f"boxes {n}", "response", 1.0)) for n in STEPS[1:]
        ],
        "ball": lambda data: [
            (f"steps: {n}", table.get("steps", data, f"ball {n}", "response", 1.0)) for n in STEPS
        ],
        "ERM": lambda data: [
            (f"Lambda {L}", table.get("steps", data, f"erm {L}", "response", 1.0)) for L in RIDGES
        ],
    }
    for data in [name for name in table.sets("steps") if name in ("breast", "digits 3-8")]:
        found, best = [], 0.0
        for name, cases in families.items():
            good = [(text, row) for text, row in cases(data) if row.nominal >= 0.95]
            text, row = max(good, key=lambda case: case[1].median, default=("none reaches it", Row({})))
            found.append(
                f"{name}: {row.median:.0f} ({text}, accuracy {row.nominal:.3f})"
                if good
                else f"{name}: {text}"
            )
            if good and name != "boxes":
                best = max(best, row.median)
        yield (
            f"{data}: median k of at least 5 at accuracy 0.95 (boxes of the paper: 0)",
            "; ".join(found),
            verdict(best >= 5),
        )


def _paper(table: Table) -> Iterator[Check]:
    """Claims of the paper, as the room's page reads it."""
    sets = [name for name in table.sets("budget") if CLASSES[name] == 2]
    wins = [(s, table.get("budget", s, "boxes", "cauchy", 10.0, 100).accuracy, table.get("budget", s, "boxes", "global", 10.0, 100).accuracy)
            for s in sets]  # fmt: skip
    if wins:
        yield (
            "Paper: smooth sensitivity on certified distances beats global sensitivity (boxes, (10, 1e-5), Q = 100, Cauchy)",
            ", ".join(f"{s} {a:.3f} / {b:.3f}" for s, a, b in wins), verdict(all(a > b for _, a, b in wins)),
        )  # fmt: skip
    for release in ("cauchy", "response"):
        cases = []
        for data in table.sets("ensembles"):
            if release in BINARY and CLASSES[data] > 2:
                continue
            values = {
                t: table.get("ensembles", data, "boxes", release, 10.0, 100, members=t).accuracy
                for t in MEMBERS
            }
            known = {t: v for t, v in values.items() if math.isfinite(v)}
            if 1 in known and len(known) > 1:
                top = max(known, key=lambda t: known[t])
                cases.append((data, known[1], top, known[top]))
        if cases:
            yield (
                f"Paper: ensembles improve on a single model (boxes, Q = 100, {RELEASE_NAMES[release]})",
                ", ".join(f"{d} T = 1 {a:.3f}, best T = {t} {b:.3f}" for d, a, t, b in cases),
                f"on {sum(t > 1 for _, _, t, _ in cases)} of {len(cases)} sets",
            )
    for total in TOTALS:
        for count in QUERIES:
            yield from _against_training(table, total, count)


def _against_training(table: Table, total: float, count: int) -> Iterator[Check]:
    """Private answers against one model of DP-SGD with the same total; ties are within 0.001."""
    own, best, behind = 0, 0, []
    sets = [s for s in table.sets("budget") if math.isfinite(table.trained(s, "dpsgd", total).accuracy)]
    sets = [
        s for s in sets if math.isfinite(table.get("budget", s, "erm", "response", total, count).accuracy)
    ]
    for data in sets:
        model = table.trained(data, "dpsgd", total).accuracy - 0.001
        mine = table.get("budget", data, "erm", "response", total, count).accuracy
        name, top = table.best("budget", data, "response", total, count)
        own, best = own + (mine >= model), best + (top.accuracy >= model)
        if mine < model:
            behind.append(f"{data} {mine:.3f} ({name} {top.accuracy:.3f}) / {model + 0.001:.3f}")
    if sets:
        yield (
            f"Private answers by the response against DP-SGD, ({total:g}, 1e-5), Q = {count:,}",
            f"ERM at least as good on {own} of {len(sets)} sets, the best certificate in hindsight on {best}; ERM behind "
            f"on: {', '.join(behind) or 'none'}",
            "",
        )


def _sets(table: Table) -> str:
    from _encoding import Unavailable
    from _prediction_paper_cells import SHAPES
    from _prediction_paper_data import load

    lines = ["## Sets", "", "| set | rows in training | columns | logistic regression, not private | larger class | what it is |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for data in table.sets("trained"):
        try:
            note = load(data).note
        except Unavailable as reason:
            note = str(reason)
        n, p = SHAPES[data]
        lines.append(f"| {data} | {n:,} | {p} | {table.trained(data, 'logistic').accuracy:.4f} | "
                     f"{table.trained(data, 'majority').accuracy:.4f} | {note} |")  # fmt: skip
    return "\n".join(lines) if len(lines) > 4 else ""


def _answers(table: Table) -> str:
    lines = ["## One answer, by its epsilon", "", "Expected accuracy; in brackets the mean over classes where it differs by more than "
             "0.02. Laplace and propose-test-release with delta = 1e-5."]  # fmt: skip
    for epsilon in ANSWERS:
        rows = []
        for data in table.sets("answers"):
            for certificate in table.certificates("answers", data):
                found = [
                    table.get("answers", data, certificate, r, epsilon)
                    for r in RELEASES
                    if r != "sparse_vector"
                ]
                if any(math.isfinite(row.accuracy) for row in found):
                    rows.append(f"| {data} | {CERTIFICATES[certificate]} | {_nominal(found)} | {found[0].median:.0f} | "
                                + " | ".join(map(_cell, found)) + " |")  # fmt: skip
        if rows:
            heads = " | ".join(RELEASE_NAMES[r] for r in RELEASES if r != "sparse_vector")
            lines += ["", f"### epsilon = {epsilon:g}", "", f"| set | certificate | without noise | median k | {heads} |",
                      "|---|---|---|---|---|---|---|---|---|", *rows]  # fmt: skip
    return "\n".join(lines) if len(lines) > 3 else ""


def _nominal(rows: list[Row]) -> str:
    """Of the response: other releases have settings of their own."""
    return f"{rows[0].nominal:.3f}" if math.isfinite(rows[0].nominal) else ""


def _cell(row: Row) -> str:
    if not math.isfinite(row.accuracy):
        return ""
    balanced = row.number("balanced")
    more = f" ({balanced:.3f})" if math.isfinite(balanced) and abs(balanced - row.accuracy) > 0.02 else ""
    return f"{row.accuracy:.4f} ± {row.error:.4f}{more}"


def _budget(table: Table) -> str:
    lines = ["## A number of answers within one total", "", "Expected accuracy by strongly convex ERM; the best certificate for the "
             "response, seen in hindsight; and models trained once with the same total."]  # fmt: skip
    for total in TOTALS:
        rows = []
        for data in table.sets("budget"):
            for count in QUERIES:
                found = [table.get("budget", data, "erm", r, total, count) for r in RELEASES]
                if not any(math.isfinite(row.accuracy) for row in found):
                    continue
                name, row = table.best("budget", data, "response", total, count)
                models = [table.trained(data, m, total) for m in ("dpsgd", "objective")]
                cells = [*(f"{r.accuracy:.4f}" if math.isfinite(r.accuracy) else "" for r in found),
                         f"{row.accuracy:.4f} ({name})",
                         *(f"{m.accuracy:.4f}" if math.isfinite(m.accuracy) else "" for m in models)]  # fmt: skip
                rows.append(
                    f"| {data} | {count:,} | {found[0].number('each'):.4g} | " + " | ".join(cells) + " |"
                )
        if rows:
            heads = " | ".join(RELEASE_NAMES[r] for r in RELEASES)
            lines += ["", f"### ({total:g}, 1e-5)", "",
                      f"| set | Q | epsilon of an answer | {heads} | response, best certificate | DP-SGD | objective perturbation |",
                      "|---" * (6 + len(RELEASES)) + "|", *rows]  # fmt: skip
    return "\n".join(lines) if len(lines) > 3 else ""


def _sparse(table: Table) -> str:
    sets = table.sets("epochs")
    if not sets:
        return ""
    lines = ["## Sparse vector: how many epochs", "", "Expected accuracy ± standard error, and the share of queries answered inside an epoch. The epsilon of an "
             "epoch falls as there are more of them, and Lambda of ERM rises with the threshold.", "",
             "| set | certificate | total | Q | " + " | ".join(f"{n:,}" for n in EPOCH_GRID) + " |", "|---" * (4 + len(EPOCH_GRID)) + "|"]  # fmt: skip
    for data in sets:
        for certificate in ("boxes", "erm"):
            for total in TOTALS:
                for count in (10_000, 100_000):
                    found = [
                        table.get("epochs", data, certificate, "sparse_vector", total, count, epochs=n)
                        for n in EPOCH_GRID
                    ]
                    cells = [f"{r.accuracy:.4f} ± {r.error:.4f}, {r.number('inside'):.3f}" if math.isfinite(r.accuracy) else ""
                             for r in found]  # fmt: skip
                    lines.append(
                        f"| {data} | {certificate} | {total:g} | {count:,} | " + " | ".join(cells) + " |"
                    )
    return "\n".join(lines)


def _ensembles(table: Table) -> str:
    sets = table.sets("ensembles")
    if not sets:
        return ""
    lines = ["## Ensembles of T members on disjoint parts", "", "Expected accuracy within (10, 1e-5).", "",
             "| set | certificate | Q | release | " + " | ".join(f"T = {t}" for t in MEMBERS) + " |", "|---" * (4 + len(MEMBERS)) + "|"]  # fmt: skip
    for data in sets:
        for certificate in ("boxes", "erm", "teachers"):
            for count in (100, 10_000):
                for release in RELEASES:
                    found = [
                        table.get("ensembles", data, certificate, release, 10.0, count, members=t)
                        for t in MEMBERS
                    ]
                    if any(math.isfinite(row.accuracy) for row in found):
                        cells = [f"{r.accuracy:.4f}" if math.isfinite(r.accuracy) else "" for r in found]
                        lines.append(
                            f"| {data} | {certificate} | {count:,} | {RELEASE_NAMES[release]} | "
                            + " | ".join(cells)
                            + " |"
                        )
    return "\n".join(lines)


def _steps(table: Table) -> str:
    sets = table.sets("steps")
    if not sets:
        return ""
    lines = ["## What steps cost", "", "Accuracy without noise / median k (boxes: k is searched up to 200 from two steps on, up to 2,000 for one).", "",
             "| set | certificate | " + " | ".join(f"{n} steps" for n in STEPS) + " |", "|---" * (2 + len(STEPS)) + "|"]  # fmt: skip
    for data in sets:
        for name in ("boxes", "ball"):
            found = [table.get("steps", data, f"{name} {n}", "response", 1.0) for n in STEPS]
            cells = [f"{r.nominal:.3f} / {r.median:.0f}" if r.quantiles else "" for r in found]
            lines.append(f"| {data} | {name} | " + " | ".join(cells) + " |")
    lines += ["", "| set | " + " | ".join(f"ERM, Lambda {L:,}" for L in RIDGES) + " |"]
    lines.append("|---" * (1 + len(RIDGES)) + "|")
    for data in sets:
        found = [table.get("steps", data, f"erm {L}", "response", 1.0) for L in RIDGES]
        cells = [f"{r.nominal:.3f} / {r.median:.0f}" if r.quantiles else "" for r in found]
        lines.append(f"| {data} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _lost(table: Table) -> str:
    lost = table.lost()
    return (
        "\n".join(["## Without a number", "", *(f"- {' '.join(key)}: {why}" for key, why in lost)])
        if lost
        else ""
    )
