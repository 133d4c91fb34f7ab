"""`tidewire doctor`: checks of this machine, the store, the server and the pipeline's source."""
