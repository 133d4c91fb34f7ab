"""What OAuth tests need: apps of their own, users of their own, and a browser that fills in our pages."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from html import unescape
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import requests

from tidewire.config import DEV_PASSWORD
from tidewire.testing import ServerProcess

CALLBACK = "https://app.example.org/callback?kind=web"
PASSWORD = "correct horse battery"
_FIELD = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)">')


class Admin:
    """The development administrator on a live server."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.headers = {"Authorization": f"Bearer {server.login()}"}

    def call(self, method: str, path: str, body: object = None) -> requests.Response:
        return requests.request(method, self.server.http + path, json=body, headers=self.headers, timeout=120)

    def make_app(self, **values: object) -> dict[str, str]:
        """An app of this test's own: `client_id` and `client_secret`."""
        answer = self.call("POST", "/services/tidewire/v1/apps", {"label": "Test app", **values})
        assert answer.status_code == 201, answer.text
        made: dict[str, str] = answer.json()
        return made

    def make_web_app(self, **values: object) -> dict[str, str]:
        scopes = ["api", "refresh_token", "openid", "id", "profile", "email"]
        return self.make_app(
            **{
                "flows": ["web_server", "user_agent", "device"],
                "callback_urls": [CALLBACK],
                "scopes": scopes,
                **values,
            }
        )

    def make_user(self, **values: object) -> str:
        """The name of a user of this test's own, with PASSWORD."""
        name = f"u{secrets.token_hex(6)}@example.org"
        self.apply(users={name: {"password": PASSWORD, **values}})
        return name

    def apply(self, **document: object) -> None:
        answer = self.call("POST", "/services/tidewire/v1/apply", document)
        assert answer.status_code == 200, answer.text

    def user_id(self, username: str) -> str:
        query = urlencode({"q": f"SELECT Id FROM User WHERE Username = '{username}'"})
        answer = self.call("GET", f"/services/data/v59.0/query?{query}")
        return str(answer.json()["records"][0]["Id"])


class Browser:
    """Cookies, forms, and no following of redirects that leave the server."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.session = requests.Session()

    def authorize(self, app: dict[str, str], **values: str) -> requests.Response:
        query = {"response_type": "code", "client_id": app["client_id"], "redirect_uri": CALLBACK, **values}
        return self.get(f"/services/oauth2/authorize?{urlencode(query)}")

    def get(self, path: str) -> requests.Response:
        return self._own(self.session.get(self.server.http + path, allow_redirects=False, timeout=120))

    def send(
        self, page: requests.Response, headers: dict[str, str] | None = None, **values: str
    ) -> requests.Response:
        """Send the page's form with these values filled in."""
        fields = {unescape(name): unescape(value) for name, value in _FIELD.findall(page.text)} | values
        action = re.search(r'<form method="post" action="([^"]*)"', page.text)
        assert action is not None, page.text
        return self._own(
            self.session.post(
                self.server.http + unescape(action[1]),
                data=fields,
                headers={"Origin": self.server.http, **(headers or {})},
                allow_redirects=False,
                timeout=120,
            )
        )

    def sign_in(
        self, page: requests.Response, username: str, password: str = DEV_PASSWORD
    ) -> requests.Response:
        return self.send(page, username=username, password=password)

    def _own(self, answer: requests.Response) -> requests.Response:
        while answer.is_redirect and answer.headers["Location"].startswith("/"):
            answer = self.session.get(
                self.server.http + answer.headers["Location"], allow_redirects=False, timeout=120
            )
        return answer


def landed(answer: requests.Response) -> dict[str, str]:
    """What a redirect carries back to the app, after checking that it is the app's address."""
    assert answer.status_code == 302, answer.text
    target = urlsplit(answer.headers["Location"])
    assert f"{target.scheme}://{target.netloc}{target.path}" == "https://app.example.org/callback"
    assert parse_qs(target.query)["kind"] == ["web"]
    return dict(parse_qsl(target.fragment or target.query))


def token(server: ServerProcess, app: dict[str, str] | None = None, /, **form: str) -> requests.Response:
    return requests.post(f"{server.http}/services/oauth2/token", data={**(app or {}), **form}, timeout=120)


def refused(answer: requests.Response) -> tuple[str, str]:
    assert answer.status_code == 400, answer.text
    body: dict[str, Any] = answer.json()
    assert set(body) == {"error", "error_description"}
    return body["error"], body["error_description"]


def pkce() -> tuple[str, str]:
    """A verifier and its challenge."""
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    return verifier, base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def reads_data(server: ServerProcess, access_token: str) -> requests.Response:
    headers = {"Authorization": f"Bearer {access_token}"}
    return requests.get(f"{server.http}/services/data/v59.0/limits", headers=headers, timeout=120)
