"""Object and event types: what a record or an event may hold, and how its values look.

Reads from: nothing but its arguments. Feeds: every stage. Guarantee: all types are frozen; a catalog never changes,
a new one replaces it. Never does: I/O.
"""
