"""Restores the meaning of Ctrl-C, because a shell that runs the tests in the background makes them
ignore SIGINT."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
