# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking back what was made, where what it was made for fails."""

from __future__ import annotations

import contextlib

from .._host.ending import EndedEarly
from .._policy.errors import Kvm2Error


@contextlib.contextmanager
def undone_by(*undos):
    """Where the block fails, the functions are called, each of them whatever came of the others. The failure of the block is the one that is
    reported; it tells what could not be taken back."""
    try:
        yield
    except Kvm2Error as error:
        raise _with_leftovers(error, undos) from error
    except EndedEarly as ended:
        ended.error = _with_leftovers(ended.error, undos)
        raise
    except BaseException:
        _call(undos)
        raise


def _with_leftovers(error, undos):
    left = _call(undos)
    if not left:
        return error
    return Kvm2Error(error.kind, error.act, error.object, f"{error.cause}. Left behind for the collector: {' '.join(left)}", error.hint, error.code)


def _call(undos):
    """Messages of those that failed."""
    left = []
    for undo in undos:
        try:
            undo()
        except Kvm2Error as error:
            left.append(error.message)
    return left
