"""Identity and rights: users, logins, OAuth, sessions, permissions and record sharing.

Reads from: the records of users, profiles, permission sets, roles, groups and shares. Feeds: the gate and the front
ends, and matching with what a subscriber may see. Guarantee: a grant change takes effect with its commit; secrets are
stored only as hashes. Never does: speak a protocol.
"""
