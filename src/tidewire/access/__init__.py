"""Who may do what: users, logins, permissions, and records as one user may use them.

Reads from: the records of users, profiles and permission sets. Feeds: the front ends, and matching with what
a subscriber may see. Guarantee: every grant
change takes effect with its commit; secrets are stored only as hashes. Never does: speak a protocol.
"""
