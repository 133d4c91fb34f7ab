"""Sockets, TLS and HTTP.

Reads from: listening sockets. Feeds: the handlers behind routes, with whole requests as plain values.
Guarantee: every request that reaches a handler is well-formed and within its limits; all others have been
rejected. Never does: know records, events or users.
"""
