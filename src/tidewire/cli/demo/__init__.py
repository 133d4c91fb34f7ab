"""`tidewire demo`: a server, a small company's org with live activity, the pipeline and the console."""
