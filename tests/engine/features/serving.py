"""How the second engine is served: under a gateway's path, and with a chat template that may raise."""

from pathlib import Path

ROOT_PATH = "/gateway"

RAISING = {
    "it says so": "{{ raise_exception('this conversation can not be served') }}",
    "it looks into nothing": "{{ message.nothing.at_all }}",
    "it divides by zero": "{{ 1 // 0 }}",
}
"""The template's action for a message, by the message's text."""


def raising_template(path: Path) -> Path:
    """Writes a chat template that equals the tiny model's own for all other messages."""
    raising = "".join(f"{{% if message.content == '{text}' %}}{what}{{% endif %}}" for text, what in RAISING.items())
    path.write_text(
        f"{{% for message in messages %}}{raising}{{{{ message.role }}}}: {{{{ message.content }}}}\n{{% endfor %}}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    return path
