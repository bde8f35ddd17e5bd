"""The pauses between a zone's requests."""

from math import inf

from tenantzone_runtime.zones.tokens.pauses import KNOWN_AFTER, Pauses


def test_the_longest_of_the_last_pauses_counts_once_enough_are_known():
    pauses, now = Pauses(), 0.0
    for number in range(2 * KNOWN_AFTER):
        assert (pauses.longest == inf) == (number < KNOWN_AFTER)
        pauses.begin(now)
        pauses.begin(now)
        length = 5.0 if number == 30 else 1.0
        pauses.end(now + length)
        pauses.end(now + length + 1.0)
        now += length + 2.0
        if number == KNOWN_AFTER + 20:
            assert pauses.longest == 5.0
    assert pauses.longest == 1.0
