"""Server processes that end with us."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_LIFELINE = Path(__file__).parent / "lifeline.py"
_LOG_TAIL_LINES = 15


class Server:
    """A running program. It ends with :meth:`stop`, and also when this process dies in whatever way."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        keep_open: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start it.

        Args:
            command: the program and its arguments.
            log: where its output goes.
            keep_open: a file descriptor that stays open until the program has ended; None for none.
            env: the program's whole environment; None: ours.
        """
        self._log = log
        with log.open("ab") as output:
            self._lifeline = subprocess.Popen(
                [sys.executable, "-I", _LIFELINE, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=() if keep_open is None else (keep_open,),
                env=env,
                # A session of its own: Ctrl-C at a terminal reaches us alone, and we stop the servers in order.
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self._lifeline.poll() is None

    @property
    def pid(self) -> int:
        """The pid of the lifeline process; the program is its child."""
        return self._lifeline.pid

    def wait(self, seconds: float) -> None:
        """Wait until it has ended.

        Raises:
            subprocess.TimeoutExpired: it still runs after that many seconds.
        """
        self._lifeline.wait(seconds)

    def stop(self) -> None:
        """End it and wait for its exit; does nothing if it has ended."""
        assert self._lifeline.stdin is not None
        self._lifeline.stdin.close()
        self._lifeline.wait()

    def log_tail(self, count: int = _LOG_TAIL_LINES) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join([f"the end of {self._log}:", *lines[-count:]])
