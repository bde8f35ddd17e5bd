"""The proxy that the environment names for a server, by the rules that kubectl has from Go (``httpproxy``)."""

import os
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def proxy_of_the_environment(server: str) -> str | None:
    """As the variables HTTPS_PROXY, HTTP_PROXY and NO_PROXY have it, in capitals or not; None: no proxy.

    What runs on this machine itself is never asked for through one.

    Args:
        server: the URL of what is to be reached.
    """
    target = urlsplit(server)
    url = _variable(f"{target.scheme}_proxy")
    if not url or not target.hostname:
        return None
    if _is_left_out(target.hostname, target.port or _PORTS.get(target.scheme, 0)):
        return None
    return url if "://" in url else f"http://{url}"


def _variable(name: str) -> str:
    return os.environ.get(name.upper()) or os.environ.get(name) or ""


def _is_left_out(host: str, port: int) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    rules = (rule.strip().lower() for rule in _variable("no_proxy").split(","))
    return any(_leaves_out(rule, host, address, port) for rule in rules if rule)


def _leaves_out(rule: str, host: str, address: IPv4Address | IPv6Address | None, port: int) -> bool:
    """Whether an entry of NO_PROXY means this: ``*``, a network, or an address or domain with or without a port."""
    if rule == "*":
        return True
    if "/" in rule:
        return _has(rule, address)
    named, only = _split_port(rule)
    if only and only != str(port):
        return False
    if (excepted := _address(named)) is not None:
        return excepted == address
    # A name is meant with all that is below it; with a dot or a star before it, only what is below.
    named = named.removeprefix("*")
    return host.endswith(named) if named.startswith(".") else host == named or host.endswith(f".{named}")


def _has(network: str, address: IPv4Address | IPv6Address | None) -> bool:
    try:
        return address is not None and address in ip_network(network, strict=False)
    except ValueError:
        return False


def _split_port(rule: str) -> tuple[str, str]:
    """An entry's address or domain, without the brackets of IPv6, and its port, if it names one."""
    if rule.startswith("["):
        named, _, port = rule[1:].partition("]")
        return named, port.removeprefix(":")
    named, _, port = rule.partition(":")
    # An address of IPv6 without brackets has more of them.
    return (named, port) if ":" not in port else (rule, "")


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
