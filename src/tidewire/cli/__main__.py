"""`python -m tidewire.cli` is `tidewire`."""

from tidewire.cli.main import main

main()
