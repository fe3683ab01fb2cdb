"""Just enough HTML: elements whose text is escaped unless it is marked as safe."""

from __future__ import annotations

import html
import unicodedata

#: Format characters that some scripts spell with.
_JOINERS = "\u200c\u200d"
_VOID = {"br", "hr", "img", "link", "meta"}


class Safe(str):
    """HTML that needs no escaping. Only this package makes it, never from data."""

    __slots__ = ()


def clean(text: object) -> str:
    """Return text without what no page may hold: control characters, lone surrogates, other non-characters.

    Directional overrides go too: a column name must not turn the words around it.
    """
    return "".join(
        character
        if character in _JOINERS or unicodedata.category(character) not in ("Cc", "Cs", "Cf", "Cn")
        else "\ufffd"
        for character in str(text).replace("\t", " ").replace("\n", " ")
    )


def escape(value: object) -> Safe:
    """Return `value` as HTML text: safe HTML as it is, everything else cleaned and escaped."""
    return value if isinstance(value, Safe) else Safe(html.escape(clean(value), quote=True))


def tag(name: str, /, *children: object, **attributes: object) -> Safe:
    """Return an element.

    Parameters
    ----------
    name : str
    *children : object
        None is left out; `Safe` is taken as it is; the rest is escaped.
    **attributes : object
        ``class_`` is class and ``aria_label`` aria-label; None and False are left out, True has no value.
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{html.escape(clean(value), quote=True)}"')
    start = f"<{' '.join(words)}>"
    if name in _VOID:
        return Safe(start)
    return Safe(f"{start}{join(*children)}</{name}>")


def join(*children: object) -> Safe:
    """Return children one after the other."""
    return Safe("".join(escape(child) for child in children if child is not None))


def name(text: object) -> Safe:
    """Return a name that came with the data, kept apart from the direction of the text around it."""
    return tag("bdi", text)


def code(text: object) -> Safe:
    """Return text in the fixed-width style."""
    return tag("code", text)


def table(
    caption: str, head: tuple[object, ...], rows: list[tuple[object, ...]], *, numbers: tuple[int, ...] = ()
) -> Safe:
    """Return a table that scrolls by itself where the screen is narrow.

    Parameters
    ----------
    caption : str
    head : tuple
    rows : list of tuple
        The first cell of each is its header.
    numbers : tuple of int
        Columns aligned to the right.
    """

    def style(index: int) -> str | None:
        return "n" if index in numbers else None

    heads = (tag("th", cell, scope="col", class_=style(i)) for i, cell in enumerate(head))
    body = []
    for row in rows:
        first = tag("th", row[0], scope="row", class_=style(0))
        rest = (tag("td", cell, class_=style(i)) for i, cell in enumerate(row[1:], start=1))
        body.append(tag("tr", first, *rest))
    inner = tag(
        "table", tag("caption", caption), tag("thead", tag("tr", *heads)), Safe("\n"), tag("tbody", *body)
    )
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)
