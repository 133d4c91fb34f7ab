"""Small clients for the server's protocols, used by the command line, the pipeline and other programs.

Reads from: a server's public endpoints. Feeds: the caller. Guarantee: every failure is an error of `tidewire.errors`,
whichever protocol reported it. Never does: import server code, so that Spark executors can use it.
"""
