# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking back what was made, where what it was made for fails."""

from __future__ import annotations

import contextlib

from .._host.ending import EndedEarly
from .._policy.errors import Kvm2Error


@contextlib.contextmanager
def undone_by(*undos, unless=None, also_ended=True):
    """Where the block fails, the functions are called, each of them whatever came of the others. The failure of the block is the one that is
    reported; it tells what could not be taken back.

    unless: a function of the failure, which tells that there is nothing to take back.  also_ended: also where the run ends in the middle, and not only
    after a Kvm2Error; without it somebody outside takes all back then.
    """
    try:
        yield
    except Kvm2Error as error:
        if unless is not None and unless(error):
            raise
        told = after_undoing(error, *undos)
        if told is error:
            raise
        raise told from error
    except EndedEarly as ended:
        if also_ended:
            ended.error = after_undoing(ended.error, *undos)
        raise
    except BaseException:
        if also_ended:
            _call(undos)
        raise


def after_undoing(error, *undos):
    """The Kvm2Error, once the functions were called: it tells what could not be taken back."""
    # What was tried inside already is told once.
    left = [message for message in _call(undos) if message.rstrip(".") not in error.cause]
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
