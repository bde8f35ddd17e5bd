"""What the engine here is told of how it is served: under a path of a gateway's, and with a template that may raise."""

from pathlib import Path

ROOT_PATH = "/gateway"

RAISING = {
    "it says so": "{{ raise_exception('this conversation can not be served') }}",
    "it looks into nothing": "{{ message.nothing.at_all }}",
    "it divides by zero": "{{ 1 // 0 }}",
}
"""What the template does, by the message that has it do so."""


def raising_template(path: Path) -> Path:
    """Write a chat template that is as the tiny model's own for all other messages."""
    raising = "".join(f"{{% if message.content == '{text}' %}}{what}{{% endif %}}" for text, what in RAISING.items())
    path.write_text(
        f"{{% for message in messages %}}{raising}{{{{ message.role }}}}: {{{{ message.content }}}}\n{{% endfor %}}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    return path
