"""System calls that a container's filter refuses, or that an old kernel does not know, for one program and all that it starts."""

import ctypes
import errno
import struct

# The same on every architecture.
NUMBERS = {"pidfd_send_signal": 424, "pidfd_open": 434, "close_range": 436}

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2
_LOAD_NUMBER, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


class Refused:
    """As `group` of a launch: every one of `calls` ends with the error, ENOSYS as on a kernel that does not have it."""

    def __init__(self, *calls, error=errno.ENOSYS):
        steps = [(_LOAD_NUMBER, 0, 0, 0)]
        for call in calls:
            steps += [(_JUMP_IF_EQUAL, 0, 1, NUMBERS[call]), (_RETURN, 0, 0, _ERROR | error)]
        steps.append((_RETURN, 0, 0, _ALLOW))
        code = b"".join(struct.pack("HBBI", *step) for step in steps)
        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = _Program(len(steps), ctypes.addressof(self._code))
        self._libc = ctypes.CDLL(None, use_errno=True)

    def enter(self):
        """For preexec_fn."""
        for words in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(self._program), 0, 0)):
            if self._libc.prctl(*words) != 0:
                raise OSError(ctypes.get_errno(), "no filter of system calls can be set")
