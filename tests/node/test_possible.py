"""Whether a node can run on this machine is reported before anything is built."""

import os

from hack.node.possible import obstacle


def test_without_root_it_says_so():
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        assert obstacle() == "a node needs root and Linux"
    finally:
        os.seteuid(user)
