"""Ctrl-C means what it means on a terminal, also where the tests run in the background of a shell,
which has SIGINT ignored."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
