"""Lets one thread at a time import Google's and Kubernetes' clients.

Pulumi's plugin for Python resources creates them in threads. Two that import `requests` for the
first time at once fail with "partially initialized module": its parts import each other in a
circle, and Python breaks the deadlock of the import locks by showing half a module.
"""

from __future__ import annotations

import threading

#: Taken around the first import of a module that holds such a client.
ONE_AT_A_TIME = threading.RLock()
