"""Runs a command and stops it when standard input closes: a server on a lifeline.

The process at the other end of that pipe need not clean up: the kernel closes the pipe, however the process dies. This
file runs as a separate program, and the other end is not passed on to the command.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading

_STDIN = 0
_CHUNK_BYTES = 4096
_GRACE_SECONDS = 5.0
"""kube-apiserver without its etcd would try for a minute."""


def main() -> None:
    """Run the command line's command until it ends or standard input closes, and exit with its code."""
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, process_group=0)
    signal.signal(signal.SIGTERM, lambda *_: command.terminate())
    threading.Thread(target=_end_on_release, args=(command,), daemon=True).start()
    code = command.wait()
    # What the command has started and left behind, as a server that was killed does, shares its group.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(command.pid, signal.SIGKILL)
    sys.exit(code if code >= 0 else 128 - code)


def _end_on_release(command: subprocess.Popen[bytes]) -> None:
    # Not sys.stdin: a thread that waits in it holds its lock, and Python aborts at its exit if it cannot get that lock.
    while os.read(_STDIN, _CHUNK_BYTES):
        pass
    command.terminate()
    try:
        command.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        command.kill()


if __name__ == "__main__":
    main()
