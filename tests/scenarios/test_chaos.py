"""Two minutes of chaos: three brokers, an S3 server and three proxies, of which now this, now that is broken.

SIDESTREAM_SEED repeats a run's schedule. tests/chaos/run.py does the work, and by hand can do it for longer.
"""

import os
import signal
import subprocess
import sys
import time

from harness import ROOT

SEED = int(os.environ.get("SIDESTREAM_SEED", time.time_ns() % 1_000_000))


def test_two_minutes_of_chaos_lose_double_and_move_nothing():
    command = [sys.executable, ROOT / "tests" / "chaos" / "run.py", "--minutes", "2", "--seed", str(SEED)]
    run = subprocess.Popen(command)
    try:
        assert run.wait(1200) == 0
    finally:
        if run.poll() is None:
            # Not SIGKILL: it has processes of its own to end.
            run.send_signal(signal.SIGTERM)
            run.wait(120)
