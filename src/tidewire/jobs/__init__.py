"""Bulk jobs: many records in one order, carried out beside everything else, over restarts of the server.

Reads what front ends upload into the org's database; feeds the gate, chunk by chunk, on behalf of the job's owner.
Guarantees that a chunk and the note that it is done are one commit, so that a job killed anywhere goes on after the
last chunk that counted. Never holds a whole upload or a whole result in memory.
"""
