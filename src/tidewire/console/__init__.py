"""The console at `/`: the page with which a person looks at an org and tries its streams.

Reads from: its own built files, made from `web/` by `make install`. Feeds: the HTTP front end, with whole
responses. Guarantee: only the files named in `page` leave the server, each under a content security policy
that allows nothing from elsewhere. Never does: touch records or the log; the page is a client like any other.
"""
