"""The runtime's settings, which the frontend and the engine core read from environment variables.

vLLM starts the API server and the engine core as separate processes, and both inherit the environment. The defaults
match the project's manifests, so zones work without any variable.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenantzone_contract.reports.report import DEFAULT_ADMIN_PORT
from tenantzone_runtime.metrics_levels import DEFAULT_LEVEL, LEVELS, Level

CONFIG_DIR = "TENANTZONE_CONFIG_DIR"
KEYS_DIR = "TENANTZONE_KEYS_DIR"
SALT_DIR = "TENANTZONE_SALT_DIR"
IDENTITY_DIR = "TENANTZONE_IDENTITY_DIR"
ADMIN_HOST = "TENANTZONE_ADMIN_HOST"
ADMIN_PORT = "TENANTZONE_ADMIN_PORT"
ADMIN_TOKEN_DIR = "TENANTZONE_ADMIN_TOKEN_DIR"
ADMIN_OPEN = "TENANTZONE_ADMIN_OPEN"
SIGNED_CONFIG = "TENANTZONE_SIGNED_CONFIG"
OPEN_ROUTES = "TENANTZONE_OPEN_ROUTES"
JOURNAL_DIR = "TENANTZONE_JOURNAL_DIR"
JOURNAL_MAX_BYTES = "TENANTZONE_JOURNAL_MAX_BYTES"
JOURNAL_KEEP = "TENANTZONE_JOURNAL_KEEP"
RECORD_DIR = "TENANTZONE_RECORD_DIR"
RECORD_MAX_BYTES = "TENANTZONE_RECORD_MAX_BYTES"
RECORD_KEEP = "TENANTZONE_RECORD_KEEP"
SCRUB_BLOCKS = "TENANTZONE_SCRUB_BLOCKS"
WARM_UP = "TENANTZONE_WARM_UP"
"""If this variable is 0, workers compile sampling kernels when they are first used, instead of at the start."""
MAX_AUTO_REGISTERED_SERIES = "TENANTZONE_MAX_AUTO_REGISTERED_SERIES"
METRICS_LEVEL = "TENANTZONE_METRICS_LEVEL"
MAX_TEXT_BYTES = "TENANTZONE_MAX_TEXT_BYTES"
MAX_BODY_BYTES = "TENANTZONE_MAX_BODY_BYTES"
MAX_GRAMMAR_BYTES = "TENANTZONE_MAX_GRAMMAR_BYTES"
MAX_PROMPTS = "TENANTZONE_MAX_PROMPTS"
MAX_TENANT_BODY_BYTES = "TENANTZONE_MAX_TENANT_BODY_BYTES"
MAX_HELD_BODY_BYTES = "TENANTZONE_MAX_HELD_BODY_BYTES"
MAX_TENANT_REQUESTS = "TENANTZONE_MAX_TENANT_REQUESTS"
MAX_MEDIA_ITEMS = "TENANTZONE_MAX_MEDIA_ITEMS"
MAX_IMAGE_PIXELS = "TENANTZONE_MAX_IMAGE_PIXELS"
MAX_REQUEST_PIXELS = "TENANTZONE_MAX_REQUEST_PIXELS"
MAX_AUDIO_SAMPLES = "TENANTZONE_MAX_AUDIO_SAMPLES"
MAX_MEDIA_FILE_BYTES = "TENANTZONE_MAX_MEDIA_FILE_BYTES"
MAX_TENANT_MEDIA_BYTES = "TENANTZONE_MAX_TENANT_MEDIA_BYTES"
MAX_HELD_MEDIA_BYTES = "TENANTZONE_MAX_HELD_MEDIA_BYTES"
SEAL_KEY = "TENANTZONE_SEAL_KEY"
STATE_DIR = "TENANTZONE_STATE_DIR"
POD_NAME = "POD_NAME"
POD_UID = "POD_UID"

DEFAULT_JOURNAL_MAX_BYTES = 16 * 2**20
DEFAULT_RECORD_MAX_BYTES = 64 * 2**20
DEFAULT_RECORD_KEEP = 8
DEFAULT_MAX_AUTO_REGISTERED_SERIES = 100


@dataclass(frozen=True, slots=True)
class Bounds:
    """The frontend's limits for requests and tenants."""

    max_text_bytes: int = 2**20
    """Maximum number of bytes of a request's body without its images, sounds and videos."""
    max_body_bytes: int = 16 * 2**20
    """Maximum number of bytes of a request's body with its images, sounds and videos, on routes that accept media."""
    max_tenant_body_bytes: int = 32 * 2**20
    """Maximum total size in bytes of the bodies of one tenant's in-flight requests."""
    max_held_body_bytes: int = 256 * 2**20
    """Maximum total size in bytes of the bodies of all tenants' in-flight requests."""
    max_tenant_requests: int = 1024
    """Maximum number of in-flight requests of one tenant. Each answer to each prompt of a list counts as a request."""
    max_grammar_bytes: int = 64 * 2**10
    """Maximum number of bytes of each field that specifies the format of the answer."""
    max_prompts: int = 128
    """Maximum number of prompts in a request's body. A prompt counts once for each of its answers."""
    max_media_items: int = 128
    """Maximum number of images, sounds and videos of a request."""
    max_image_pixels: int = 2**25
    """Maximum number of pixels of one image, or of one frame of a video."""
    max_request_pixels: int = 2**26
    """Maximum number of pixels of all images and frames of a request."""
    max_audio_samples: int = 2**26
    """Maximum number of samples of all sounds of a request, summed over their channels."""
    max_media_file_bytes: int = 2**26
    """Maximum number of bytes of all media files of a request, before the files are decoded."""
    max_tenant_media_bytes: int = 2**32
    """Maximum memory in bytes for media of one tenant that are decoded or processed at the same time."""
    max_held_media_bytes: int = 2**33
    """Maximum memory in bytes for media of all tenants that are decoded or processed at the same time."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The runtime's settings from the environment."""

    config_dir: Path
    """The folder in which the pool's ConfigMap is mounted (with ``config.json``)."""
    keys_dir: Path
    """The folder with the tenants' API keys. It has one file per tenant, which has the tenant's name."""
    salt_dir: Path
    """The folder in which the Secret with the pool's salt key is mounted."""
    admin_host: str
    admin_port: int
    admin_token_dir: Path
    """The folder in which the Secret with the admin port's tokens is mounted."""
    open_routes: frozenset[str]
    """Paths that are open to clients without a key, although they show several tenants' data, such as ``/metrics``."""
    seal_key: bytes
    """The key that the frontend and the scheduler share; empty until vLLM's plugin has created the key."""
    pod_name: str
    pod_uid: str = ""
    state_dir: Path | None = None
    """The folder in which the engine core publishes its config to the frontend; None until the plugin creates it."""
    identity_dir: Path = Path("/etc/tenantzone/identity")
    """The folder with the secret or CAs that prove a trusted header, or with the keys that verify tokens."""
    admin_open: bool = False
    """Whether requests to the admin port need no token."""
    signed_config: bool = False
    """Whether a config must be signed with one of the admin port's tokens."""
    scrub_blocks: bool = False
    """Whether GPU workers prepare to zero blocks that move to another zone. CPU workers always do."""
    journal_dir: Path | None = None
    """The folder of the audit journal; None for no journal."""
    journal_max_bytes: int = DEFAULT_JOURNAL_MAX_BYTES
    """The size in bytes at which a file of the journal is rotated."""
    journal_keep: int = 0
    """The number of journal files to keep, including the newest file; 0 for all files."""
    record_dir: Path | None = None
    """The folder of recordings of requests; None for no recordings."""
    record_max_bytes: int = DEFAULT_RECORD_MAX_BYTES
    """The size in bytes at which a recording is rotated."""
    record_keep: int = DEFAULT_RECORD_KEEP
    """The number of rotated recordings of each process to keep, in addition to the current file."""
    max_auto_registered_series: int = DEFAULT_MAX_AUTO_REGISTERED_SERIES
    """Maximum number of zones without a TenantZone that have separate metrics. Others are summed in one zone."""
    metrics_level: Level = DEFAULT_LEVEL
    """The level of detail of each zone's metrics."""
    bounds: Bounds = Bounds()


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read the runtime's settings from environment variables.

    Raises:
        ValueError: a variable is invalid. The message names the variable, and what it must be.
    """
    try:
        seal_key = bytes.fromhex(environ.get(SEAL_KEY, ""))
    except ValueError:
        raise ValueError(f"{SEAL_KEY}: expected hexadecimal digits") from None
    return Settings(
        config_dir=Path(environ.get(CONFIG_DIR, "/etc/tenantzone/config")),
        keys_dir=Path(environ.get(KEYS_DIR, "/etc/tenantzone/keys")),
        salt_dir=Path(environ.get(SALT_DIR, "/etc/tenantzone/salt")),
        identity_dir=Path(environ.get(IDENTITY_DIR, "/etc/tenantzone/identity")),
        admin_host=environ.get(ADMIN_HOST, "0.0.0.0"),
        admin_port=_number(environ, ADMIN_PORT, DEFAULT_ADMIN_PORT, "a port number"),
        admin_token_dir=Path(environ.get(ADMIN_TOKEN_DIR, "/etc/tenantzone/admin")),
        admin_open=environ.get(ADMIN_OPEN) == "1",
        signed_config=_switch(environ, SIGNED_CONFIG),
        open_routes=frozenset(filter(None, environ.get(OPEN_ROUTES, "").split(","))),
        seal_key=seal_key,
        pod_name=environ.get(POD_NAME, ""),
        pod_uid=environ.get(POD_UID, ""),
        state_dir=Path(environ[STATE_DIR]) if environ.get(STATE_DIR) else None,
        scrub_blocks=environ.get(SCRUB_BLOCKS) == "1",
        journal_dir=Path(environ[JOURNAL_DIR]) if environ.get(JOURNAL_DIR) else None,
        journal_max_bytes=_number(environ, JOURNAL_MAX_BYTES, DEFAULT_JOURNAL_MAX_BYTES, "a number of bytes"),
        journal_keep=_number(environ, JOURNAL_KEEP, 0, "a number of files"),
        record_dir=Path(environ[RECORD_DIR]) if environ.get(RECORD_DIR) else None,
        record_max_bytes=_number(environ, RECORD_MAX_BYTES, DEFAULT_RECORD_MAX_BYTES, "a number of bytes", least=1),
        record_keep=_number(environ, RECORD_KEEP, DEFAULT_RECORD_KEEP, "a number of files", least=1),
        max_auto_registered_series=_number(
            environ, MAX_AUTO_REGISTERED_SERIES, DEFAULT_MAX_AUTO_REGISTERED_SERIES, "a number of zones"
        ),
        metrics_level=_level(environ),
        bounds=_bounds(environ),
    )


def _switch(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name, "")
    if text not in ("", "0", "1"):
        raise ValueError(f"{name}={text!r}: expected 1 or 0")
    return text == "1"


def _level(environ: Mapping[str, str]) -> Level:
    text = environ.get(METRICS_LEVEL, DEFAULT_LEVEL)
    for level in LEVELS:
        if text == level:
            return level
    raise ValueError(f"{METRICS_LEVEL}={text!r}: expected {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")


def _bounds(environ: Mapping[str, str]) -> Bounds:
    default = Bounds()
    tenant_media = _number(
        environ, MAX_TENANT_MEDIA_BYTES, default.max_tenant_media_bytes, "a number of bytes", least=1
    )
    # If only the limit per tenant is raised, also raise the limit of all tenants together, so that it permits as much.
    held_media = max(tenant_media, default.max_held_media_bytes)
    return Bounds(
        max_text_bytes=_number(environ, MAX_TEXT_BYTES, default.max_text_bytes, "a number of bytes"),
        max_body_bytes=_number(environ, MAX_BODY_BYTES, default.max_body_bytes, "a number of bytes"),
        max_tenant_body_bytes=_number(
            environ, MAX_TENANT_BODY_BYTES, default.max_tenant_body_bytes, "a number of bytes"
        ),
        max_held_body_bytes=_number(environ, MAX_HELD_BODY_BYTES, default.max_held_body_bytes, "a number of bytes"),
        max_tenant_requests=_number(environ, MAX_TENANT_REQUESTS, default.max_tenant_requests, "a number of requests"),
        max_grammar_bytes=_number(environ, MAX_GRAMMAR_BYTES, default.max_grammar_bytes, "a number of bytes"),
        max_prompts=_number(environ, MAX_PROMPTS, default.max_prompts, "a number of prompts"),
        max_media_items=_number(environ, MAX_MEDIA_ITEMS, default.max_media_items, "a number of images", least=1),
        max_image_pixels=_number(environ, MAX_IMAGE_PIXELS, default.max_image_pixels, "a number of pixels", least=2),
        max_request_pixels=_number(environ, MAX_REQUEST_PIXELS, default.max_request_pixels, "a number of pixels"),
        max_audio_samples=_number(environ, MAX_AUDIO_SAMPLES, default.max_audio_samples, "a number of samples"),
        max_media_file_bytes=_number(environ, MAX_MEDIA_FILE_BYTES, default.max_media_file_bytes, "a number of bytes"),
        max_tenant_media_bytes=tenant_media,
        max_held_media_bytes=_number(environ, MAX_HELD_MEDIA_BYTES, held_media, "a number of bytes", least=1),
    )


def _number(environ: Mapping[str, str], name: str, default: int, expected: str, *, least: int = 0) -> int:
    text = environ.get(name, str(default))
    if not text.isdecimal() or int(text) < least:
        raise ValueError(f"{name}={text!r}: expected {expected}{f' above {least - 1}' if least else ''}")
    return int(text)
