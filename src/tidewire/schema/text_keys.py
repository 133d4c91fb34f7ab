"""How text compares, decided once: every engine compares the folded key bytewise, so none of them decides."""

from __future__ import annotations

import unicodedata


def fold_key(text: str, *, case_sensitive: bool = False) -> str:
    """The key under which `text` is compared, sorted and made unique: NFC, then case folded unless told
    otherwise.
    """
    if text.isascii():  # the common case, for which composing and folding are only this
        return text if case_sensitive else text.lower()
    composed = unicodedata.normalize("NFC", text)
    if case_sensitive:
        return composed
    # Folding can undo composition (U+0130 and friends), so compose again: keys of equal text must be equal
    # bytes.
    return unicodedata.normalize("NFC", composed.casefold())
