"""The standard streams of this process, before it makes descriptors for another one."""

import os


def open_standard_streams() -> None:
    """Open those that are closed, as daemons close them: else a socket gets their number, and what is printed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
