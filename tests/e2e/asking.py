"""Sends requests to engines. This runs in a pod, from its text alone, with only Python's own library."""

import json
import select
import sys
import time
import urllib.error
import urllib.request

_REFUSED_SECONDS = 10
_UNTIL_SECONDS = 120
_POLL_SECONDS = 0.02
_PAUSE_SECONDS = 0.1
"""Seconds between requests of a load: engines that start meanwhile need the cores, too."""


def main(what: str, url: str, key: str, *arguments: str) -> None:
    if what == "load":
        keep_asking(url, key)
    elif what == "until":
        (status,) = arguments
        await_status(url.split(","), key, int(status))
    else:
        prompt, tokens = arguments
        print(json.dumps(ask_again(url, key, prompt, int(tokens))))


def ask(url: str, key: str, prompt: str, tokens: int) -> dict:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=60) as answer:
        return json.load(answer)


def ask_again(url: str, key: str, prompt: str, tokens: int) -> dict:
    """Sends a request; retries refused connections: a Service names a killed engine until kube-proxy notices."""
    deadline = time.monotonic() + _REFUSED_SECONDS
    while True:
        try:
            return ask(url, key, prompt, tokens)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError) or time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def keep_asking(url: str, key: str) -> None:
    """Sends requests until standard input ends: ending kubectl alone does not end the program in the pod.

    Prints a line for each request: null, or why it failed.
    """
    number = 0
    while not select.select([sys.stdin], [], [], _PAUSE_SECONDS)[0]:
        number += 1
        failure = None
        try:
            ask(url, key, f"Question {number}? " * 20, 4)
        except OSError as error:
            failure = str(error)
        print(json.dumps(failure), flush=True)


def await_status(urls: list[str], key: str, status: int) -> None:
    """Sends requests until each URL answers with the status.

    Prints an empty line when it begins, and one for each URL: the Unix time of its first such answer.
    """
    print(flush=True)
    waiting, deadline = set(urls), time.monotonic() + _UNTIL_SECONDS
    while waiting and time.monotonic() < deadline:
        for url in sorted(waiting):
            if status_of(url, key) == status:
                print(time.time(), flush=True)
                waiting.discard(url)
        time.sleep(_POLL_SECONDS)


def status_of(url: str, key: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


if __name__ == "__main__":
    main(*sys.argv[1:])
