"""A process of a real server, which a test suspends or kills."""

from __future__ import annotations

import signal
import subprocess


class ServerProcess:
    """A server that `start` of a subclass starts as `process`."""

    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """Suspend the process: connections stay open, but nothing is answered."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the suspended process."""
        self.process.send_signal(signal.SIGCONT)
