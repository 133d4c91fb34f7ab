"""Sockets, TLS and the HTTP that travels on them.

Reads from: listening sockets. Feeds: whoever stands behind a route, with whole requests as plain values.
Guarantee: what is handed on is well-formed and within its limits; what is not has been refused. Never does:
know of records, events or users.
"""
