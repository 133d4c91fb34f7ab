"""The server's own management API under `/services/tidewire/v1`: what the command line, console and pipelines call."""
