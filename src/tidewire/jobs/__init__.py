"""Bulk jobs: long-running imports, deletes and queries that survive a restart of the server.

Reads from: the rows that front ends upload into the org's database. Feeds: the gate, one chunk at a time, as the
user who owns the job. Guarantee: a chunk and its results are one commit, so a job that was killed resumes after its
last committed chunk. Never does: hold a whole upload or a whole result in memory.
"""
