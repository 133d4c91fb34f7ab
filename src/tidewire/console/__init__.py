"""The console at `/`, a web page for inspecting an org and trying its streams.

Reads from: its own built files, made from `web/` by `make install`. Feeds: HTTP requests, with whole
responses. Guarantee: only the files named in `page` leave the server, each under a content security policy
that allows nothing from other origins. Never does: touch records or the log; the page is a client like any
other.
"""
