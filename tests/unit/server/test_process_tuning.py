from __future__ import annotations

import resource
import subprocess
import sys

from tidewire.server.process_tuning import allow_many_connections

_HASHING = """
import threading
from pathlib import Path
from tidewire.access.passwords import hash_password
from tidewire.server.process_tuning import return_large_blocks, freeze_startup_objects

def resident_kb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4

return_large_blocks()
before_kb = resident_kb()
for _ in range(4):
    hashing = [threading.Thread(target=hash_password, args=("secret",)) for _ in range(2)]
    for thread in hashing:
        thread.start()
    for thread in hashing:
        thread.join()
freeze_startup_objects()
print(resident_kb() - before_kb)
"""


def test_memory_of_password_hashes_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HASHING], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) < 10_000  # one hash takes 19 MB


def test_open_files_are_allowed_up_to_the_hard_limit() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
        allow_many_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
