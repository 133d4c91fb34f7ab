from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidewire.console.page import page_response, session_response
from tidewire.delivery.front_end import DevLogin

PATHS = {
    "/": ("index.html", "text/html;charset=UTF-8"),
    "/console/app.js": ("app.js", "text/javascript;charset=UTF-8"),
    "/console/app.css": ("app.css", "text/css;charset=UTF-8"),
    "/console/icon.svg": ("icon.svg", "image/svg+xml"),
}


@pytest.mark.parametrize("path", PATHS)
def test_page_file_that_was_built_is_served_with_its_type(path: str, tmp_path: Path) -> None:
    name, content_type = PATHS[path]
    (tmp_path / name).write_bytes(b"built " + name.encode())

    response = page_response(path, tmp_path)

    assert response is not None
    assert response.status == 200
    assert response.body == b"built " + name.encode()
    assert response.content_type == content_type


@pytest.mark.parametrize("path", PATHS)
def test_page_file_allows_nothing_from_elsewhere_and_no_caching(path: str, tmp_path: Path) -> None:
    (tmp_path / PATHS[path][0]).write_bytes(b"x")

    response = page_response(path, tmp_path)

    assert response is not None
    headers = dict(response.headers)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/",
        "/index.html",
        "/console/page.py",
        "/console/../page.py",
        "/console/static/app.js",
        "",
    ],
)
def test_page_path_that_is_not_listed_is_not_ours(path: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_bytes(b"x")

    assert page_response(path, tmp_path) is None


def test_page_that_was_never_built_says_so_until_it_is(tmp_path: Path) -> None:
    before = page_response("/", tmp_path)
    (tmp_path / "index.html").write_bytes(b"now built")
    after = page_response("/", tmp_path)

    assert before is not None
    assert before.status == 503
    assert b"make web" in before.body
    assert after is not None
    assert (after.status, after.body) == (200, b"now built")


def test_page_file_is_read_once(tmp_path: Path) -> None:
    built = tmp_path / "app.js"
    built.write_bytes(b"first")
    page_response("/console/app.js", tmp_path)
    built.write_bytes(b"second")

    response = page_response("/console/app.js", tmp_path)

    assert response is not None
    assert response.body == b"first"


def test_session_in_development_offers_the_login_and_is_not_cached() -> None:
    response = session_response(DevLogin("admin@tidewire.local", "secret-1", "app", "secret-2"))

    assert response.status == 200
    assert response.content_type == "application/json;charset=UTF-8"
    assert json.loads(response.body) == {
        "dev": {
            "username": "admin@tidewire.local",
            "password": "secret-1",
            "client_id": "app",
            "client_secret": "secret-2",
        }
    }
    headers = dict(response.headers)
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers


def test_session_outside_development_offers_nothing() -> None:
    assert json.loads(session_response(None).body) == {"dev": None}


def test_dev_login_repr_keeps_its_secrets() -> None:
    shown = repr(DevLogin("admin@tidewire.local", "secret-1", "app", "secret-2"))

    assert "admin@tidewire.local" in shown
    assert "secret" not in shown
