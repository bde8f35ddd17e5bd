"""Sends requests to a server with LiteLLM, in its own Python, and prints what each request raised.

Usage: ask_with_litellm.py URL HEADER VALUE...
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import litellm

url, header, *values = sys.argv[1:]


def ask(value: str) -> list[object]:
    try:
        litellm.completion(
            "openai/m",
            [{"role": "user", "content": "hi"}],
            api_base=url,
            api_key="key",
            max_retries=1,
            timeout=120,
            extra_headers={header: value},
        )
    except Exception as error:
        return [type(error).__name__, getattr(error, "status_code", None)]
    return ["", 200]


with ThreadPoolExecutor(8) as pool:
    print(json.dumps(dict(zip(values, pool.map(ask, values), strict=True))))
