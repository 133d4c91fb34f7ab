"""Stage 6: the protocols that clients speak, one package each.

Reads from: requests, and events as delivery hands them over. Feeds: clients. Guarantee: a client meets its
protocol's own
words, also in failure, and nothing of ours behind them. Never does: know another front end, or decide what a
user may see.
"""
