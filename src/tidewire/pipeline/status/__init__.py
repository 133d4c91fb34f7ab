"""The state of a pipeline: read from its tables, reported while it runs, exported as metrics."""
