"""The eviction policies again, as plainly as possible: lists, and nothing from the core."""


class LeastRecentlyUsed:
    """The block that was let go longest ago goes first."""

    def __init__(self, kept=()):
        self.kept = []
        """The kept blocks, the next one to go first."""
        for block in kept:
            self.keep(block)

    def keep(self, block):
        self.kept.append(block)

    def hit(self, block):
        self.kept.remove(block)

    def lose(self):
        """Removes and returns the block that goes next."""
        return self.kept.pop(0)

    def forget(self, block):
        """Drops the block, kept or in use: it no longer belongs to the zone."""
        if block in self.kept:
            self.kept.remove(block)


class Clock(LeastRecentlyUsed):
    """A block that was hit since its last turn is passed over once."""

    def __init__(self, kept=()):
        self.marked = set()
        super().__init__(kept)

    def hit(self, block):
        super().hit(block)
        self.marked.add(block)

    def lose(self):
        while self.kept[0] in self.marked:
            self.marked.remove(self.kept[0])
            self.kept.append(self.kept.pop(0))
        return super().lose()

    def forget(self, block):
        super().forget(block)
        self.marked.discard(block)


class LeastFrequentlyUsed(LeastRecentlyUsed):
    """The block with the least key goes first; among equals, the one that was let go longest ago."""

    def __init__(self, kept=()):
        self.age = 0
        self.uses = {}
        self.key = {}
        super().__init__(kept)

    def keep(self, block):
        self.uses[block] = min(15, self.uses.get(block, 0) + 1)
        self.key[block] = self.age + self.uses[block]
        super().keep(block)
        self.kept.sort(key=self.key.get)

    def lose(self):
        block = super().lose()
        self.age = self.key[block]
        self.forget(block)
        return block

    def forget(self, block):
        super().forget(block)
        self.uses.pop(block, None)


ORDERS = {"LRU": LeastRecentlyUsed, "Clock": Clock, "LFU": LeastFrequentlyUsed}
