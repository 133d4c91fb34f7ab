"""The browser behind a page: its cookies, and proof that a form it sends is one that we gave it.

A form carries a keyed hash of what it belongs to: before the login a random cookie, after it the login session and
what is being allowed. Keys live as long as the process; an older form is shown anew.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256

from tidewire.transport.http import HttpRequest

SESSION_COOKIE = "sid"
FORM_COOKIE = "tidewire_form"
_MAX_COOKIES = 100
# One for all orgs: a login form is made before it is known whose user will fill it in.
_KEY = secrets.token_bytes(32)


class FormGuard:
    """Makes and checks the hidden proof of forms."""

    def render(self, *belongs_to: str) -> str:
        """The proof to put into a form."""
        text = "\n".join(f"{len(part)}:{part}" for part in belongs_to)
        return hmac.new(_KEY, text.encode("utf-8", "surrogatepass"), sha256).hexdigest()

    def is_ours(self, proof: str, *belongs_to: str) -> bool:
        """Whether this proof was made for the same."""
        return hmac.compare_digest(proof.encode("utf-8", "surrogatepass"), self.render(*belongs_to).encode())


def is_own_page(request: HttpRequest) -> bool:
    """Whether a form was sent by one of our pages, as far as the browser tells."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    return (origin is None or origin == request.base_url) and site in ("same-origin", "none")


def read_cookie(request: HttpRequest, name: str) -> str:
    """The value of a cookie, or nothing."""
    for pair in request.headers.get("cookie", "").split(";")[:_MAX_COOKIES]:
        key, _, value = pair.strip().partition("=")
        if key == name:
            return value
    return ""


def cookie_header(request: HttpRequest, name: str, value: str) -> tuple[str, str]:
    """A cookie that scripts cannot read and that other sites' forms do not send along."""
    secure = "; Secure" if request.scheme == "https" else ""
    return "Set-Cookie", f"{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}"


def draw_form_cookie() -> str:
    """What binds a login form to its browser."""
    return secrets.token_urlsafe(24)
