"""The wiring: the only package that knows every stage and builds a running server from them.

Reads from: configuration. Feeds: every stage, by handing it what it needs. Guarantee: stages meet only here,
and front ends only in `front_ends`. Never does: any stage's work.
"""
