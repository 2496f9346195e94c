# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that touches storage in the place of the module: it may be stuck in the kernel for ever, and is left behind then.

It is started with its own source as text, so it imports nothing but what is quick to load. Requests come on standard input and answers go to
standard output, each as 4 bytes of length and the marshalled values: (name of a function, arguments), (True, answer) or (False, errno, text).
"""

from __future__ import annotations

import marshal
import os
import stat as modes

LENGTH = 4
# What a pipe for the content of files holds, and what of it is read at once.
PIPE, COPIED_AT_ONCE = 1024 ** 2, 256 * 1024
# Small enough to be still in the processor's cache when it is hashed.
HASHED_AT_ONCE = 256 * 1024
_HASHED = {}


def realpath(path):
    return os.path.realpath(path)


def realpaths(_folder, paths):
    return [os.path.realpath(path) for path in paths]


def exists(path):
    return os.path.exists(path)


def readable(path):
    """May this process read a file and sync its folder, and are they there?"""
    return os.access(path, os.R_OK) and os.access(os.path.dirname(path), os.R_OK)


def lexists(path):
    return os.path.lexists(path)


def device(path):
    return os.stat(path).st_dev


def statvfs(path):
    """(block size, blocks, free, available, files, files available)."""
    found = os.statvfs(path)
    return found.f_frsize, found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_favail


def node(path):
    """(path, uid, gid, permissions, has it an ACL, SELinux label or None) of a folder or device."""
    found = os.stat(path)
    label = (_attribute(path, "security.selinux") or b"").rstrip(b"\0").decode("utf-8", "replace") or None
    return path, found.st_uid, found.st_gid, modes.S_IMODE(found.st_mode) & 0o777, _attribute(path, "system.posix_acl_access") is not None, label


def look_at_all(_path, paths):
    """node of each of several paths, up to the first that cannot be seen."""
    found = []
    for path in paths:
        try:
            found.append(node(path))
        except OSError:
            break
    return found


def _attribute(path, name):
    try:
        return os.getxattr(path, name)
    except OSError:
        return None


def open_file(path):
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def fdatasync(descriptor):
    os.fdatasync(descriptor)


def fsync(descriptor):
    os.fsync(descriptor)


def fsync_folder(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hash_on(descriptor, most):
    """Read on in a file, `most` bytes where there are that many: (bytes read, hex sha256 of all that was read of it until now)."""
    # Loaded where it is needed: most workers only look at something, and are waited for.
    import hashlib
    if descriptor not in _HASHED:
        _HASHED[descriptor] = hashlib.sha256()
    block, done = memoryview(bytearray(HASHED_AT_ONCE)), 0
    while done < most:
        size = os.readv(descriptor, [block[:most - done]])
        if not size:
            break
        _HASHED[descriptor].update(block[:size])
        done += size
    return done, _HASHED[descriptor].hexdigest()


def hash_written(descriptor, most, behind):
    """hash_on, but no further than so many bytes before the next hole: for a file that something fills."""
    at = os.lseek(descriptor, 0, os.SEEK_CUR)
    hole = os.lseek(descriptor, at, os.SEEK_HOLE)
    os.lseek(descriptor, at, os.SEEK_SET)
    return hash_on(descriptor, max(0, min(most, hole - behind - at)))


def open_unwritten(path):
    """(descriptor, does the filesystem tell that nothing is written to it yet) of a file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # What was read of it, or would be read ahead, counts as written.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        told = os.lseek(descriptor, 0, os.SEEK_HOLE) == 0
        if told:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    except OSError:
        told = False
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor, told


def is_same(path, descriptor):
    """Is an open file still the one of that path?"""
    return os.path.exists(path) and os.path.samestat(os.stat(path), os.fstat(descriptor))


def open_regular(path):
    """(descriptor, bytes) of a regular file, None for anything else."""
    # A named pipe would block the opening.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    facts = os.fstat(descriptor)
    if not modes.S_ISREG(facts.st_mode):
        os.close(descriptor)
        return None
    return descriptor, facts.st_size


def send(descriptor):
    """Write all of a file to standard output, bare; the process ends with it, its code is 0 or the errno of what went wrong.

    By copying: sendfile and splice keep the pipe locked while they wait for the storage, so whoever reads from it would be stuck as well.
    """
    block = memoryview(bytearray(COPIED_AT_ONCE))
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        while True:
            size = os.readv(descriptor, [block])
            if not size:
                os._exit(0)
            write(1, block[:size])
    except OSError as error:
        os._exit(error.errno)


def nameless(folder):
    """Descriptor of a new file in a folder that never has a name; OSError where the filesystem makes none."""
    return os.open(folder, os.O_TMPFILE | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)


def removed(folder):
    """Descriptor of a new file in a folder that has lost its name at once."""
    path = os.path.join(folder, f".kvm2-spool-{os.urandom(8).hex()}")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return descriptor


def write(descriptor, block):
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view):]


def is_beside(path, descriptor):
    """Is an open file on the filesystem of that path?"""
    return os.stat(path).st_dev == os.fstat(descriptor).st_dev


def room(descriptor):
    """(bytes available, bytes in all) on the filesystem of an open file."""
    found = os.fstatvfs(descriptor)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def run(command):
    """(exit code, standard output as bytes) of a program; what it says on standard error is left out."""
    reader, writer = os.pipe()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    try:
        # There is no AnsibleModule here whose run_command could be called.
        pid = os.posix_spawn(_program(command[0]), command, os.environ, file_actions=actions)  # pylint: disable=ansible-bad-function
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    with os.fdopen(reader, "rb") as output:
        text = output.read()
    status = os.waitpid(pid, 0)[1]
    return (os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)), text


def _program(name):
    found = (os.path.join(folder, name) for folder in os.get_exec_path())
    return next((path for path in found if os.access(path, os.X_OK) and not os.path.isdir(path)), name)


FUNCTIONS = {
    function.__name__: function for function in (
        realpath, realpaths, exists, readable, lexists, device, statvfs, node, look_at_all, open_file, fdatasync, fsync, fsync_folder, hash_on,
        hash_written, open_unwritten, is_same, open_regular, send, nameless, removed, write, is_beside, room, run)}


def answer(request):
    name, arguments = request
    try:
        return True, FUNCTIONS[name](*arguments)
    except OSError as error:
        return False, error.errno, error.strerror


def pack(values):
    data = marshal.dumps(values)
    return len(data).to_bytes(LENGTH, "big") + data


def main():
    with os.fdopen(0, "rb") as requests, os.fdopen(1, "wb", 0) as answers:
        while True:
            head = requests.read(LENGTH)
            if len(head) < LENGTH:
                break
            answers.write(pack(answer(marshal.loads(requests.read(int.from_bytes(head, "big"))))))


if __name__ == "__main__":
    main()
