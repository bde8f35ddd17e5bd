"""How the second engine is served: under a path of a gateway, and with a chat template that may raise."""

from pathlib import Path

ROOT_PATH = "/gateway"

RAISING = {
    "it says so": "{{ raise_exception('this conversation can not be served') }}",
    "it looks into nothing": "{{ message.nothing.at_all }}",
    "it divides by zero": "{{ 1 // 0 }}",
}
"""What the template does at a message, by the text of that message."""


def raising_template(path: Path) -> Path:
    """Write a chat template that is as the tiny model's own for all other messages."""
    raising = "".join(f"{{% if message.content == '{text}' %}}{what}{{% endif %}}" for text, what in RAISING.items())
    path.write_text(
        f"{{% for message in messages %}}{raising}{{{{ message.role }}}}: {{{{ message.content }}}}\n{{% endfor %}}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    return path
