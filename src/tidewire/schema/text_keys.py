"""The keys by which text is compared: SQLite, PostgreSQL and Python compare them bytewise, so all agree."""

from __future__ import annotations

import unicodedata


def fold_key(text: str, *, case_sensitive: bool = False) -> str:
    """Return the key by which a text is compared, sorted and unique: NFC, then case folded unless `case_sensitive`."""
    if text.isascii():  # the common case: nothing to compose
        return text if case_sensitive else text.lower()
    composed = unicodedata.normalize("NFC", text)
    if case_sensitive:
        return composed
    # Folding can undo composition (U+0130), so compose again: keys of equal texts must be equal bytes.
    return unicodedata.normalize("NFC", composed.casefold())
