"""The proxy that the environment names for a server, by the rules of Go's ``httpproxy``, which kubectl uses."""

import os
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def proxy_of_the_environment(server: str) -> str | None:
    """Returns the proxy from HTTPS_PROXY, HTTP_PROXY and NO_PROXY, in capitals or not; None if there is none.

    Servers on this machine itself never use a proxy.

    Args:
        server: the URL of the server.
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
    """Returns whether an entry of NO_PROXY matches: ``*``, a network, or an address or domain, maybe with a port."""
    if rule == "*":
        return True
    if "/" in rule:
        return _has(rule, address)
    named, only = _split_port(rule)
    if only and only != str(port):
        return False
    if (excepted := _address(named)) is not None:
        return excepted == address
    # A domain also matches its subdomains; with a leading dot or star it matches only those.
    named = named.removeprefix("*")
    return host.endswith(named) if named.startswith(".") else host == named or host.endswith(f".{named}")


def _has(network: str, address: IPv4Address | IPv6Address | None) -> bool:
    try:
        return address is not None and address in ip_network(network, strict=False)
    except ValueError:
        return False


def _split_port(rule: str) -> tuple[str, str]:
    """Returns an entry's address or domain, without the brackets of IPv6, and its port or an empty text."""
    if rule.startswith("["):
        named, _, port = rule[1:].partition("]")
        return named, port.removeprefix(":")
    named, _, port = rule.partition(":")
    # An IPv6 address without brackets contains more colons.
    return (named, port) if ":" not in port else (rule, "")


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
