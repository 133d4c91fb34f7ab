"""Puts an object's stored and derived rows together into one subquery. Knows no names but those it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidewire.soql.bound import DerivedRows


def union_rows(
    stored: str,
    columns: Sequence[str],
    derived: Sequence[DerivedRows],
    column_of_name: Callable[[str], str],
    write: Callable[[DerivedRows], str],
) -> str:
    """The subquery: `stored` selects the stored rows, if there are any; `write` gives the SELECT of derived ones.

    It is called in the order of the text, so that parameters come in that order too.
    """
    parts = [stored] if stored else []
    parts += [write(rows) for rows in derived if not rows.merged_by]
    by_key: dict[tuple[str, ...], list[DerivedRows]] = {}
    for rows in derived:
        if rows.merged_by:
            by_key.setdefault(rows.merged_by, []).append(rows)
    for number, (key, several) in enumerate(by_key.items()):
        inner = " UNION ALL ".join([write(rows) for rows in several])
        keys = [column_of_name(name) for name in key]
        least = ", ".join(name if name in keys else f"MIN({name}) AS {name}" for name in columns)
        parts.append(f"SELECT {least} FROM ({inner}) AS merged_{number} GROUP BY {', '.join(keys)}")  # noqa: S608
    return f"({' UNION ALL '.join(parts)})"
