"""The tables of a lake: how they are written, which rows belong together, and who may write.

`tables` holds the schemas and the commit rule; `manifest` names the snapshot points that readers see; `control` and
`dirty` list what must be read again; `lease` keeps a second writer out.
"""
