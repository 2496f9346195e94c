# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hypervisor as a whole: versions, Python libraries, acceleration, the daemon's limits, clocks, and what happens at boot."""

from __future__ import annotations

from .checks import FAIL, OK, SKIPPED, WARN, Check
from .packages import library_hint

# What is tested; major * 1000000 + minor * 1000 + release, as libvirt counts.
LEAST_LIBVIRT, LEAST_QEMU = 9_000_000, 7_002_000
_NOT_LOCAL = "cannot be seen over this connection"
_NEARLY = 0.8


def version(number):
    """libvirt's number of a version as text."""
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


def versions(facts):
    """The Checks of libvirt and QEMU. facts: model.HostFacts."""
    for name, have, least in (("libvirt", facts.libvirt_version, LEAST_LIBVIRT), ("QEMU", facts.hypervisor_version, LEAST_QEMU)):
        if have < least:
            yield Check(
                f"{name} version", WARN, f"{name} is {version(have)}; {version(least)} is the oldest that is tested.",
                "Use a newer release of the distribution, or its backports.")
        else:
            yield Check(f"{name} version", OK, f"{name} is {version(have)}.")


def libraries(runtime, makes_instances):
    """The Check of the Python libraries. runtime: host_state.Runtime.  makes_instances: a missing one then fails."""
    missing = [library.name for library in runtime.libraries if library.version is None]
    present = ", ".join(f"{library.name} {library.version}".strip() for library in runtime.libraries if library.version is not None)
    message = f"{runtime.interpreter} (Python {runtime.python}) has {present or 'none of the libraries'}"
    if not missing:
        return Check("Python libraries", OK, f"{message}.")
    return Check(
        "Python libraries", FAIL if makes_instances else WARN, f"{message}, and lacks {', '.join(missing)}.",
        library_hint(missing, runtime.interpreter, runtime.families))


def kvm(state, user, wanted):
    """The Checks of the kernel's KVM. state: host_state.Kvm or None where it cannot be seen.  user: QEMU's, or None.  wanted: a virt_type or None."""
    if wanted not in ("auto", "kvm"):
        return
    name = "kvm device"
    if state is None:
        yield Check(name, SKIPPED, f"Whether /dev/kvm works {_NOT_LOCAL}.")
        return
    bad = FAIL if wanted == "kvm" else WARN
    if state.node is None:
        if state.flags:
            module = "kvm_intel" if "vmx" in state.flags else "kvm_amd"
            yield Check(name, bad, "There is no /dev/kvm, though the processor could do it.", f"Load the module: modprobe {module}.")
        elif wanted == "kvm":
            yield Check(
                name, bad, "There is no /dev/kvm, and the processor shows neither vmx nor svm.",
                "Enable virtualisation in the firmware, or nested virtualisation in the hypervisor around this one; or use virt_type qemu.")
    elif state.problem:
        yield Check(name, bad, f"/dev/kvm is there, but {state.problem}.", "See: dmesg | grep -i kvm.")
    elif user is not None and not state.node.acl and not state.node.allows(user, 6):
        yield Check(
            name, bad, f"QEMU runs as {user}, who may not open /dev/kvm (owner {state.node.uid}, group {state.node.gid}, mode {state.node.mode:04o}).",
            f"Put that user into the group kvm: usermod -aG kvm {user.name or user.uid}.")
    else:
        yield Check(name, OK, "The kernel's KVM answers, and QEMU's user may use it.")


def limits(found):
    """The Check of the daemon's limits. found: host_state.Limits or None."""
    name = "connection limits"
    if found is None:
        return Check(name, SKIPPED, f"The daemon's limits {_NOT_LOCAL}, or their settings cannot be read.")
    message = f"{found.daemon} takes {found.max_clients} clients"
    if found.clients is not None:
        message += f" and has {found.clients}"
    if found.max_unauthenticated is not None:
        message += f"; {found.max_unauthenticated} may wait for their authentication"
        if found.unauthenticated is not None:
            message += f" and {found.unauthenticated} do"
    message += f" (by {found.source})"
    for have, most, setting in (
            (found.clients, found.max_clients, "max_clients"), (found.unauthenticated, found.max_unauthenticated, "max_anonymous_clients")):
        if have is not None and most is not None and have >= most * _NEARLY:
            return Check(
                name, WARN, f"{message}: nearly all are taken.",
                f"See who they are: virt-admin client-list {found.daemon}. Raise {setting} in {found.file}, then: systemctl restart {found.daemon}.")
    # A run opens one connection for each module; several controllers and libvirt's own daemons need some too.
    if found.max_clients < 10:
        return Check(
            name, WARN, f"{message}: that is little.", f"Raise max_clients in {found.file}, then: systemctl restart {found.daemon}.")
    return Check(name, OK, f"{message}.")


def guests_service(found):
    """The Check of libvirt-guests. found: host_state.GuestsService, or None where it cannot be seen."""
    name = "libvirt-guests"
    if found is None:
        return Check(name, SKIPPED, f"What starts guests at boot {_NOT_LOCAL}.")
    if not found.enabled:
        return Check(name, OK, "libvirt-guests does not run: guests start at boot by their autostart alone.")
    problems, settings = [], []
    if found.on_boot == "start":
        problems.append("starts whatever ran at the shutdown again at boot, also what was to be off or gone by then")
        settings.append("ON_BOOT=ignore")
    if found.on_shutdown == "suspend":
        problems.append("saves guests at shutdown, so that they go on with their old memory")
        settings.append("ON_SHUTDOWN=shutdown")
    if problems:
        return Check(name, WARN, f"libvirt-guests {' and '.join(problems)}.", f"Set {' and '.join(settings)} in {found.file}; autostart starts guests.")
    return Check(name, OK, f"libvirt-guests leaves the start of guests to their autostart (ON_BOOT={found.on_boot}, ON_SHUTDOWN={found.on_shutdown}).")


def clocks(here, controller, local, newest, most):
    """The Check of the clocks, times in seconds since the epoch.

    here: of the machine that runs the module.  controller: of the controller, or None where it was not given.  local: is this machine the
    hypervisor?  newest: the latest mtime in the pool, or None.  most: how far apart they may be, in seconds.
    """
    name, hint = "clocks", "Let both keep time, such as with chrony or systemd-timesyncd: timedatectl set-ntp true."
    if newest is not None and newest - here > most:
        whose = "this machine" if local else "the machine that runs the module"
        return Check(name, WARN, f"A volume in the pool is from {newest - here:.0f} s after the present time of {whose}.", hint)
    if not local:
        return Check(name, SKIPPED, "The hypervisor's clock cannot be read over this connection; no volume in the pool is from the future.")
    if controller is None:
        return Check(name, SKIPPED, "Not compared with the controller's clock, since controller_time is not given; no volume is from the future.")
    apart = here - controller
    message = f"The hypervisor's clock is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} the controller's, the time to get here included"
    if abs(apart) > most:
        return Check(name, WARN, f"{message}; {most:.0f} s are tolerated. Ages of instances and images are told by these clocks.", hint)
    return Check(name, OK, f"{message}.")
