"""A worker extension that reads the memory of KV blocks; vLLM's workers import it."""


class BlockReader:
    def read_blocks(self, blocks: list[int], total: int) -> list[list[float]]:
        """Reads everything that the device holds in each block: all layers, keys and values.

        ``total``: the number of blocks of the cache, which identifies the axis of the blocks.
        """
        contents = []
        for block in blocks:
            numbers: list[float] = []
            for cache in self.model_runner.kv_caches:
                assert list(cache.shape).count(total) == 1
                numbers += cache.select(list(cache.shape).index(total), block).flatten().tolist()
            contents.append(numbers)
        return contents
