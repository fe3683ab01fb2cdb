"""The page is well-formed, self-contained, accessible, escaped, small, and the same for the same facts."""

import re

import pytest

from confide.report import write_report
from confide.report.style import DARK, LIGHT

from .conftest import HOSTILE, Page


@pytest.fixture(scope="module")
def text(charged, table, public_test, tmp_path_factory):
    result, book, before = charged
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert write_report(result, path, table=table, ledger=book, before=before, test=public_test) == path
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_landmarks_language_and_headings(page):
    assert page.all("html")[0]["lang"] == "en"
    assert {"charset": "utf-8"} in page.all("meta")
    assert any(meta.get("name") == "viewport" for meta in page.all("meta"))
    for landmark in ("header", "nav", "main", "footer", "h1", "title"):
        assert len(page.all(landmark)) == 1
    ids = {attributes["id"] for _, attributes, _ in page.elements if "id" in attributes}
    assert all(section["aria-labelledby"] in ids for section in page.all("section"))
    assert all(link["href"][1:] in ids for link in page.all("a"))
    assert len(page.all("section")) == len(page.all("a")) == 8


def test_ids_are_unique_and_references_resolve(page, text):
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = re.findall(r"url\(#([^)]+)\)", text) + [u["href"][1:] for u in page.all("use")]
    assert used
    assert set(used) <= set(ids)


def test_pictures_have_words_and_tables_have_captions(page):
    pictures = page.all("svg")
    assert len(pictures) == 4
    assert all(picture["role"] == "img" and len(picture["aria-label"]) > 40 for picture in pictures)
    assert not page.all("img")
    assert page.children("figure", "figcaption") == (4, 4)
    count, captioned = page.children("table", "caption")
    assert count == captioned == 6
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))


def test_nothing_is_loaded_or_run(page, text):
    for tag in ("script", "link", "iframe", "object", "embed", "form", "image", "foreignobject"):
        assert not page.all(tag)
    for _, attributes, _ in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert all(attributes.get(name, "#").startswith("#") for name in ("href", "src", "xlink:href"))
        assert "//" not in attributes.get("style", "")
    assert not re.search(r"@import|https?://|url\((?!#)", text)
    policy = next(m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy


def test_names_are_escaped_and_still_readable(page, text):
    assert HOSTILE not in text
    assert "<i>north" not in text
    assert "<b>" not in text
    assert HOSTILE in page.text
    assert "名前" in page.text
    assert "\u202e" not in text  # a name cannot turn the text around it
    assert "turn\ufffdback" in page.text
    assert "$x_1^{2$" in page.text
    assert "city: <i>north</i>" in page.text
    assert not page.all("script")


def test_equal_facts_make_equal_bytes(charged, table, public_test, text, tmp_path):
    result, book, before = charged
    # Another folder, a second run; the ledger's place is a fact, so it is passed as its state.
    again = [
        write_report(
            result,
            tmp_path / name / "r.html",
            table=table,
            ledger=book.show(),
            before=before,
            test=public_test,
        )
        for name in ("a", "b c")
    ]
    assert again[0].read_bytes() == again[1].read_bytes()
    assert not list(tmp_path.rglob("*.tmp"))
    assert len(text.encode()) < 500_000


def test_a_date_stands_there_only_when_passed(charged, text, tmp_path):
    made = write_report(charged[0], tmp_path / "r.html", made="5 May 2031").read_text()
    assert "5 May 2031" in made
    assert "5 May 2031" not in text


def test_colours_follow_the_scheme(text):
    svg = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    assert "var(--ink)" in svg
    assert not re.search(r"#[0-9a-f]{6}", svg)
    assert "prefers-color-scheme:dark" in text
    assert "@media print" in text


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("front", "ground"),
    [(f, g) for f in ("ink", "muted", "accent", "second") for g in ("paper", "panel")]
    + [("alarm-ink", "alarm")],
)
def test_contrast_meets_wcag_aa(colours, front, ground):
    light, dark = sorted((luminance(colours[front]), luminance(colours[ground])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_many_columns_stay_small(tmp_path):
    import numpy as np

    from confide.training import PrivateRegressor

    random = np.random.default_rng(0)
    X = random.normal(size=(1500, 300))
    fitted = PrivateRegressor(1, 1e-6, target_bounds=(-3, 3), conditioning="spectral", leverage=1).fit(
        X, X[:, 0]
    )
    path = write_report(fitted.result_, tmp_path / "wide.html")
    page = Page(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 500_000
    assert "60 largest of 300" in page.text
    assert "fitted on arrays, without a schema" in page.text


def test_without_pictures_no_drawing_library_is_loaded(tmp_path):
    import subprocess
    import sys

    code = """
import sys
import numpy as np
from confide.training import PrivateRegressor
from confide.report import write_report
X = np.linspace(-1, 1, 200).reshape(-1, 2)
result = PrivateRegressor(1, 1e-6, target_bounds=(-1, 1)).fit(X, X[:, 0]).result_
print(write_report(result, sys.argv[1], figures=False).stat().st_size)
assert "matplotlib" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "plain.html")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 5000
    assert "<svg" not in (tmp_path / "plain.html").read_text()
