"""What users of kubectl have in their kubeconfigs, each with an API server that checks the resulting requests."""

import asyncio
import datetime
import shutil
from collections.abc import Awaitable, Callable

from bench.kubernetes_clients.outcomes import Finding, judge
from bench.kubernetes_clients.server import Visit, proxying
from bench.kubernetes_clients.stage import OTHER_ADDRESS, OTHER_NAME, PLUGIN_VERSION, USER, Stage, encoded

PATIENCE_SECONDS = 65.0
"""Within which a token's file has to be read again: client-go takes a minute."""

_ENDS_SECONDS = 2.0


def _bearer(token: str) -> Callable[[Visit], bool]:
    return lambda visit: visit.authorization == f"Bearer {token}"


def _anybody(_: Visit) -> bool:
    return True


def _user(visit: Visit) -> bool:
    return visit.certificate == USER


async def certificate_as_data(stage: Stage) -> Finding:
    """A client certificate that the kubeconfig holds."""
    certificate, key = map(encoded, stage.certificates.client)
    return await _accepted(stage, _user, {"client-certificate-data": certificate, "client-key-data": key})


async def certificate_as_file(stage: Stage) -> Finding:
    """A client certificate that it names."""
    certificate, key = map(str, stage.certificates.client)
    return await _accepted(stage, _user, {"client-certificate": certificate, "client-key": key})


async def relative_files(stage: Stage) -> Finding:
    """Files that are named from where the kubeconfig lies."""
    for name, path in zip(
        ("ca", "crt", "key"), (stage.certificates.authority.certificate, *stage.certificates.client), strict=True
    ):
        shutil.copy(path, stage.folder / name)
    user = {"client-certificate": "crt", "client-key": "key"}
    return await _accepted(stage, _user, user, {"certificate-authority": "ca"})


async def _accepted(
    stage: Stage, accepts: Callable[[Visit], bool], user: dict[str, str], cluster: dict[str, object] | None = None
) -> Finding:
    async with stage.server(accepts) as server:
        stage.write(server.url, user, cluster or {})
        async with stage.client() as client:
            return judge(await client.error(), as_asked=True, names="certificate")


async def plain_http(stage: Stage) -> Finding:
    """A server without TLS, as ``kubectl proxy`` is one."""
    async with stage.server(_anybody, tls=False) as server:
        stage.write(server.url, {}, {"certificate-authority": None})
        async with stage.client() as client:
            return judge(await client.error(), as_asked=True, names="http")


async def rotated_token_file(stage: Stage) -> Finding:
    """Another token in the file, after which the old one is refused."""
    token, path = "first", stage.folder / "token"
    path.write_text(token)
    async with stage.server(lambda visit: _bearer(token)(visit)) as server:
        stage.write(server.url, {"tokenFile": str(path)})
        async with stage.client() as client:
            if (error := await client.error()) is None:
                token = "second"
                path.write_text(token)
                error = await client.error()
            if error is not None:
                await asyncio.sleep(PATIENCE_SECONDS)
                error = await client.error()
            return judge(error, as_asked=True, names="token file")


async def plugin_gives_token(stage: Stage) -> Finding:
    """A credential plugin that needs the version of its caller."""
    async with stage.server(_bearer("given")) as server:
        stage.write(server.url, stage.plugin(token="given"))
        async with stage.client() as client:
            error = await client.error()
            as_asked = stage.plugin_was_asked.get("apiVersion") == PLUGIN_VERSION
            return judge(error, as_asked=as_asked, names=PLUGIN_VERSION)


async def plugin_is_asked_again(stage: Stage) -> Finding:
    """A plugin's token that is refused from some time on."""
    token = "first"
    async with stage.server(lambda visit: _bearer(token)(visit)) as server:
        stage.write(server.url, stage.plugin(token=token))
        async with stage.client() as client:
            if (error := await client.error()) is None:
                token = "second"
                stage.plugin_gives(token=token)
                error = await client.error()
            return judge(error, as_asked=True, names=PLUGIN_VERSION)


async def plugin_token_ends(stage: Stage) -> Finding:
    """A plugin's token with the time of its end."""
    token = "first"
    async with stage.server(lambda visit: _bearer(token)(visit)) as server:
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=_ENDS_SECONDS)
        stage.write(server.url, stage.plugin(token=token, expirationTimestamp=end.strftime("%Y-%m-%dT%H:%M:%SZ")))
        async with stage.client() as client:
            if (error := await client.error()) is None:
                token = "second"
                stage.plugin_gives(token=token)
                await asyncio.sleep(_ENDS_SECONDS)
                error = await client.error()
            return judge(error, as_asked=True, names=PLUGIN_VERSION)


async def plugin_gives_certificate(stage: Stage) -> Finding:
    """A plugin that gives a client certificate and its key."""
    certificate, key = (path.read_text() for path in stage.certificates.client)
    async with stage.server(_user) as server:
        stage.write(server.url, stage.plugin(clientCertificateData=certificate, clientKeyData=key))
        async with stage.client() as client:
            return judge(await client.error(), as_asked=True, names=PLUGIN_VERSION)


async def plugin_wants_cluster(stage: Stage) -> Finding:
    """A plugin that is to know for which cluster it is asked (``provideClusterInfo``)."""
    async with stage.server(_bearer("given")) as server:
        user = stage.plugin(token="given")
        user["exec"]["provideClusterInfo"] = True
        stage.write(server.url, user)
        async with stage.client() as client:
            error = await client.error()
            as_asked = stage.plugin_was_asked.get("spec", {}).get("cluster", {}).get("server") == server.url
            return judge(error, as_asked=as_asked, names="provideClusterInfo")


async def plugin_from_here(stage: Stage) -> Finding:
    """A plugin that is named from where the kubeconfig lies."""
    async with stage.server(_bearer("given")) as server:
        user = stage.plugin(token="given")
        user["exec"]["command"] = "./plugin"
        stage.write(server.url, user)
        async with stage.client() as client:
            return judge(await client.error(), as_asked=True, names="./plugin")


async def plugin_gives_nothing(stage: Stage) -> Finding:
    """A plugin that gives neither token nor certificate: the request must not be anonymous."""
    async with stage.server(_anybody) as server:
        stage.write(server.url, stage.plugin())
        async with stage.client() as client:
            return judge(await client.error(), as_asked=False, names="token")


async def certificate_without_key(stage: Stage) -> Finding:
    """A client certificate that can't be used: the request must not be anonymous."""
    async with stage.server(_anybody) as server:
        stage.write(server.url, {"client-certificate": str(stage.certificates.client[0])})
        async with stage.client() as client:
            return judge(await client.error(), as_asked=False, names="key")


async def proxy_url(stage: Stage) -> Finding:
    """A cluster behind a proxy."""
    async with stage.server(_bearer("known")) as server, proxying() as proxy:
        stage.write(server.url, {"token": "known"}, {"proxy-url": proxy.url})
        async with stage.client() as client:
            error = await client.error()
            return judge(error, as_asked=proxy.connections > 0, names="proxy")


async def proxy_of_the_environment(stage: Stage) -> Finding:
    """A machine behind a proxy, as the variable HTTPS_PROXY says."""
    async with stage.server(_bearer("known")) as server, proxying() as proxy:
        # Not loopback's own address: some leave that out, as client-go does.
        stage.write(server.url.replace("127.0.0.1", OTHER_NAME), {"token": "known"})
        async with stage.client(HTTPS_PROXY=proxy.url) as client:
            error = await client.error()
            return judge(error, as_asked=proxy.connections > 0, names="proxy")


async def first_file_wins(stage: Stage) -> Finding:
    """Two kubeconfigs that say different things of the same names."""
    async with stage.server(_bearer("first")) as first, stage.server(_anybody) as second:
        stage.write(first.url, {"token": "first"}, name="first")
        stage.write(second.url, {"token": "second"}, name="second")
        async with stage.client() as client:
            return judge(await client.error(), as_asked=not second.visits, names="KUBECONFIG")


async def parts_in_two_files(stage: Stage) -> Finding:
    """Two kubeconfigs; the second has the current context."""
    async with stage.server(_bearer("known")) as server:
        authority = str(stage.certificates.authority.certificate)
        cluster = {"server": server.url, "certificate-authority": authority}
        stage.write_parts("first", {"clusters": [{"name": "c", "cluster": cluster}]})
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        user = {"name": "u", "user": {"token": "known"}}
        stage.write_parts("second", {"contexts": [context], "users": [user], "current-context": "x"})
        async with stage.client() as client:
            return judge(await client.error(), as_asked=True, names="current-context")


async def server_of_another_name(stage: Stage) -> Finding:
    """A server whose certificate holds a name that is not its address (``tls-server-name``)."""
    async with stage.server(_bearer("known"), host=OTHER_ADDRESS) as server:
        stage.write(server.url, {"token": "known"}, {"tls-server-name": OTHER_NAME})
        async with stage.client() as client:
            return judge(await client.error(), as_asked=True, names="tls-server-name")


async def impersonation(stage: Stage) -> Finding:
    """A user who impersonates another one."""
    async with stage.server(_bearer("known")) as server:
        stage.write(server.url, {"token": "known", "as": USER})
        async with stage.client() as client:
            error = await client.error()
            return judge(error, as_asked=all(visit.impersonated == USER for visit in server.visits), names="as is")


async def unverified(stage: Stage) -> Finding:
    """A server that need not show who it is."""
    async with stage.server(_bearer("known")) as server:
        fields = {"insecure-skip-tls-verify": True, "certificate-authority": None}
        stage.write(server.url, {"token": "known"}, fields)
        async with stage.client() as client:
            return judge(await client.error(), as_asked=True, names="insecure")


CASES: dict[str, Callable[[Stage], Awaitable[Finding]]] = {
    "client certificate, data": certificate_as_data,
    "client certificate, files": certificate_as_file,
    "files named relatively": relative_files,
    "http, no credentials": plain_http,
    "token file, rotated": rotated_token_file,
    "exec v1, token": plugin_gives_token,
    "exec, token refused later": plugin_is_asked_again,
    "exec, token that ends": plugin_token_ends,
    "exec, client certificate": plugin_gives_certificate,
    "exec, provideClusterInfo": plugin_wants_cluster,
    "exec, named relatively": plugin_from_here,
    "exec gives nothing (1)": plugin_gives_nothing,
    "certificate, no key (1)": certificate_without_key,
    "proxy-url": proxy_url,
    "HTTPS_PROXY": proxy_of_the_environment,
    "two files, first wins": first_file_wins,
    "two files, parts in each": parts_in_two_files,
    "tls-server-name": server_of_another_name,
    "as": impersonation,
    "insecure-skip-tls-verify": unverified,
}
REMARK = "(1) has to be refused: an anonymous request would be another user's."
