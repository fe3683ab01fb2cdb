"""Line numbers of TOML keys, whatever their spelling."""

from __future__ import annotations

import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st

from confide.schema.lines import key_lines, nearest_line

TEXT = '''# a comment with [columns.fake] in it
[table]
name = "x # no comment"
note = """
[columns.fake2]
lower = 3 \\"""
"""
[columns."quoted ] = name"]  # trailing
role = 'public'
"lower" = 1
[ columns . spaced ]
categories = [ # here
  "a]", 'b"', # there
  """c
d""", 4,
]
upper = { x = 1, "y.z" = [ { k = 2 } ], w.v = 3 }
[columns]
dotted.role = "label"
dotted."up per" = 1979-05-27 07:32:00
"tab\\u0041" . lower = -1.5e3
[[many]]
a = 1
[[many]]
a = 2
'''


def test_each_key_has_its_line() -> None:
    tomllib.loads(TEXT)
    lines = key_lines(TEXT)
    want = {
        ("table",): 2,
        ("table", "name"): 3,
        ("table", "note"): 4,
        ("columns",): 8,
        ("columns", "quoted ] = name"): 8,
        ("columns", "quoted ] = name", "role"): 9,
        ("columns", "quoted ] = name", "lower"): 10,
        ("columns", "spaced"): 11,
        ("columns", "spaced", "categories"): 12,
        ("columns", "spaced", "categories", 0): 13,
        ("columns", "spaced", "categories", 1): 13,
        ("columns", "spaced", "categories", 2): 14,
        ("columns", "spaced", "categories", 3): 15,
        ("columns", "spaced", "upper"): 17,
        ("columns", "spaced", "upper", "y.z", 0, "k"): 17,
        ("columns", "spaced", "upper", "w", "v"): 17,
        ("columns", "dotted"): 19,
        ("columns", "dotted", "role"): 19,
        ("columns", "dotted", "up per"): 20,
        ("columns", "tabA", "lower"): 21,
        ("many", 0, "a"): 23,
        ("many", 1, "a"): 25,
    }
    assert {path: lines.get(path) for path in want} == want
    assert ("columns", "fake") not in lines
    assert ("columns", "fake2") not in lines


def test_a_key_that_is_absent_has_the_line_of_its_table() -> None:
    assert nearest_line(key_lines(TEXT), ("columns", "spaced", "lower")) == 11
    assert nearest_line({}, ("columns",)) is None


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(max_size=5), min_size=1
    )
)
def test_any_names(columns: dict[str, str]) -> None:
    from confide.schema.model import toml_key, toml_text

    text, line, want = "", 0, {}
    for name, value in columns.items():
        text += f"[columns.{toml_key(name)}] # {value!r}\nnote = {toml_text(value)}\n\n"
        want[("columns", name, "note")] = line + 2
        line += 3
    assert tomllib.loads(text)["columns"].keys() == columns.keys()
    lines = key_lines(text)
    assert {path: lines[path] for path in want} == want
