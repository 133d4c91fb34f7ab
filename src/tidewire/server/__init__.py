"""The wiring: the only package that knows every stage, and makes one running server of them.

Reads from: configuration. Feeds: everybody, by handing each stage what it needs. Guarantee: stages meet only
here. Never does: any stage's work.
"""
