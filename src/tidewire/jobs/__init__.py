"""Bulk jobs: large loads and queries that run in the background and survive a restart of the server.

Reads from: uploads that front ends store in the org's database.
Feeds: the gate, chunk by chunk, on behalf of the job's owner.
Guarantee: a chunk and its progress are one commit, so a killed job resumes after the last committed chunk.
Never does: hold a whole upload or a whole result in memory.
"""
