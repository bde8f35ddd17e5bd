"""A process with a small buffer and many threads, which ends while they run: `python -m … MASTER`."""

import os
import sys
import threading
from contextlib import suppress

from tenantzone_runtime.shared.storage.mooncake import MooncakeStorages
from tenantzone_runtime.shared.storage.places import PoolPlace

BUFFER, OBJECT, THREADS, TIMES = 4 * 2**20, 2**19 + 1, 16, 10


def main(master: str) -> None:
    os.environ |= {"MOONCAKE_MASTER": master, "MOONCAKE_LOCAL_BUFFER_SIZE": str(BUFFER)}
    storages, failed = MooncakeStorages(), list[Exception]()

    def move(thread: int) -> None:
        place, content = PoolPlace(master, f"crowd/{thread}"), bytes([thread]) * OBJECT
        try:
            storages.write(place, bytearray(content))
            for _ in range(TIMES):
                found = bytearray(OBJECT)
                assert storages.read(place, found)
                assert found == content
        except (OSError, AssertionError) as error:
            failed.append(error)

    threads = [threading.Thread(target=move, args=(thread,)) for thread in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    print(len(failed), "failed")

    try:
        storages.write(PoolPlace(master, "crowd/large"), bytearray(BUFFER + 1))
    except OSError as error:
        print(str(error).replace(f"a MOONCAKE_LOCAL_BUFFER_SIZE above {BUFFER}", "more"))

    under_way = threading.Semaphore(0)

    def read_always(thread: int) -> None:
        with suppress(OSError):
            while True:
                storages.read(PoolPlace(master, f"crowd/{thread}"), bytearray(OBJECT))
                under_way.release()

    for thread in range(THREADS):
        threading.Thread(target=read_always, args=(thread,), daemon=True).start()
    for _ in range(5 * THREADS):
        under_way.acquire()


if __name__ == "__main__":
    main(sys.argv[1])
