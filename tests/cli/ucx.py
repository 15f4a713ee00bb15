"""Is UCX on this machine? (Debian: libucx0)"""

import ctypes.util

HAS_UCX = ctypes.util.find_library("ucp") is not None
