"""Runs a program as a container engine does: with another root directory, as an unprivileged user, and with the seccomp
profile that engines apply by default.

    confined.py PROFILE ROOT UID PROGRAM ARGUMENT...
"""

import ctypes
import json
import os
import platform
import sys

# From seccomp.h of libseccomp.
ALLOW = 0x7FFF0000
ERRNO = 0x00050000
COMPARE = {
    "SCMP_CMP_NE": 1,
    "SCMP_CMP_LT": 2,
    "SCMP_CMP_LE": 3,
    "SCMP_CMP_EQ": 4,
    "SCMP_CMP_GE": 5,
    "SCMP_CMP_GT": 6,
    "SCMP_CMP_MASKED_EQ": 7,
}
UNKNOWN = -1
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class Argument(ctypes.Structure):
    """A condition on an argument of a system call."""

    _fields_ = [
        ("index", ctypes.c_uint),
        ("compare", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("value_two", ctypes.c_uint64),
    ]


def applies(rule):
    """Says whether a rule is for a process of this machine without capabilities."""
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    machine = MACHINES[platform.machine()]
    wanted = not includes.get("caps") and machine in includes.get("arches", [machine])
    return wanted and machine not in excludes.get("arches", [])


def action(name, errno):
    """Returns an action as libseccomp has it."""
    return ALLOW if name == "SCMP_ACT_ALLOW" else ERRNO | errno


def filter_of(profile, library):
    """Returns the filter that a profile describes."""
    library.seccomp_init.restype = ctypes.c_void_p
    made = ctypes.c_void_p(library.seccomp_init(action(profile["defaultAction"], profile["defaultErrnoRet"])))
    for rule in filter(applies, profile["syscalls"]):
        conditions = [
            Argument(one["index"], COMPARE[one["op"]], one["value"], one["valueTwo"]) for one in rule["args"] or []
        ]
        array = (Argument * len(conditions))(*conditions)
        does = action(rule["action"], rule.get("errnoRet") or 1)
        for name in rule["names"]:
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number == UNKNOWN:
                continue
            failed = library.seccomp_rule_add_array(made, ctypes.c_uint32(does), number, len(conditions), array)
            if failed:
                sys.exit(f"{name}: libseccomp refuses the rule: {failed}")
    return made


def main():
    profile, root, user, *command = sys.argv[1:]
    library = ctypes.CDLL("libseccomp.so.2")
    with open(profile, encoding="utf-8") as file:
        made = filter_of(json.load(file), library)
    os.chroot(root)
    os.chdir("/")
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
    # It also sets that the process gets no new privileges.
    failed = library.seccomp_load(made)
    if failed:
        sys.exit(f"the kernel refuses the filter: {failed}")
    os.execv(command[0], command)


main()
