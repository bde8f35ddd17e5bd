"""Generates files from the manager's API: its OpenAPI description, and the Python messages of its proto file.

Run it after a change of a call or of a message: make manager-api. It needs no network.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from grpc_tools import protoc

from hack.version import VERSION
from tenantzone_manager.server.messages import ErrorResponse
from tenantzone_manager.server.service import CALLS, Call

SERVER = Path(__file__).parents[2] / "runtime" / "tenantzone_manager" / "server"
PROTO = SERVER / "manager.proto"
MESSAGES = SERVER / "generated" / "manager_pb2.py"
OPENAPI = SERVER / "openapi.json"
_STATUSES = {
    "400": "The request contradicts itself or names what can't be; the message says what to change.",
    "401": "It is not known who asks.",
    "403": "It is known who asks, and may not.",
    "404": "There is no such thing that who asks may see.",
    "409": "It contradicts what is registered.",
    "503": "The index does not answer; ask again.",
}


def openapi() -> str:
    """The description of the HTTP API, OpenAPI 3.1."""
    types = [kind for call in CALLS for kind in (call.request, call.response)] + [ErrorResponse]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    references = dict(zip(types, schemas, strict=True))
    description = {
        "openapi": "3.1.0",
        "info": {"title": "TenantZone KV-cache manager", "version": VERSION, "license": {"name": "Apache-2.0"}},
        "paths": {f"/v1/{call.name}": {"post": _operation(call, references)} for call in CALLS},
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }
    return json.dumps(description, indent=2) + "\n"


def messages() -> str:
    """The Python module of the proto file's messages."""
    with TemporaryDirectory() as folder:
        code = protoc.main(["protoc", f"--proto_path={PROTO.parent}", f"--python_out={folder}", str(PROTO)])
        if code:
            sys.exit(f"protoc ended with {code}")
        return (Path(folder) / MESSAGES.name).read_text()


def _operation(call: Call, references: dict[type[Any], Any]) -> dict[str, Any]:
    refusal = {"application/json": {"schema": references[ErrorResponse]}}
    return {
        "operationId": call.name,
        "summary": (call.request.__doc__ or "").splitlines()[0],
        "description": "For administrators." if call.needs_admin else "For callers of the instance's pool.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": references[call.request]}}},
        "responses": {
            "200": {
                "description": (call.response.__doc__ or "").splitlines()[0],
                "content": {"application/json": {"schema": references[call.response]}},
            },
            **{status: {"description": text, "content": refusal} for status, text in _STATUSES.items()},
        },
    }


if __name__ == "__main__":
    MESSAGES.write_text(messages())
    OPENAPI.write_text(openapi())
