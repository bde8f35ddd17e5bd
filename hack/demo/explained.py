"""Errors of the demo that are shown without a traceback, because their messages describe the problem."""

from openai import OpenAIError

from hack.controlplane import ClusterError
from hack.controlplane.binaries import BinariesError
from hack.demo.processes import ProcessDiedError
from hack.demo.stack import AlreadyRunningError
from hack.progress import CommandFailed

EXPLAINED = (AlreadyRunningError, BinariesError, ClusterError, CommandFailed, OpenAIError, OSError, ProcessDiedError)
