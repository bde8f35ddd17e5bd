"""Errors of a story whose message says what went wrong; a traceback would only hide it."""

from openai import OpenAIError

from hack.controlplane import ClusterError
from hack.controlplane.binaries import BinariesError
from hack.demo.processes import ProcessDiedError
from hack.demo.stack import AlreadyRunningError
from hack.progress import CommandFailed

EXPLAINED = (AlreadyRunningError, BinariesError, ClusterError, CommandFailed, OpenAIError, OSError, ProcessDiedError)
