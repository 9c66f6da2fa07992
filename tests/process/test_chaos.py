"""A short run of tests/chaos: everything dies and freezes at random under load, under the real supervisor. The long one:
tests/chaos/run --minutes 60."""

import os
import subprocess

from pipeline import BUILD

REPO = __file__.rsplit("/tests/", 1)[0]


def test_half_a_minute_of_chaos():
    done = subprocess.run([f"{REPO}/tests/chaos/run", "--minutes", "0.5", "--seed", "7", "--clients", "4", "--port", "18976"],
                          capture_output=True, text=True, timeout=400, env={**os.environ, "LOCKSTEP_BUILD": str(BUILD)})
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout
    assert "  right " in done.stdout and "kill -9" in done.stdout
