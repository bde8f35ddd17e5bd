"""The manager's pure rules at their bounds, without a store."""

import re
from typing import ClassVar

import pytest

from tenantzone_manager.core.books import Owner, chain, storage_account
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.moving import leave_for_others
from tenantzone_manager.core.placement import Candidate, bytes_that_fit, place
from tenantzone_manager.core.quota import Account, Charge, OverLimit, charged
from tenantzone_manager.core.records import Block, CacheLocation, LocationSpec, State
from tenantzone_manager.core.settings import (
    LARGEST,
    Instance,
    InstanceGroup,
    InstanceQuota,
    Quota,
    Spec,
    check_group,
    check_instance,
)
from tenantzone_manager.core.sharing import of_namespace, shared

OWNER = Owner("team", "chat")
DISK = Candidate("ssd", "FileSystem")
LEAF, *ABOVE = chain(OWNER, DISK.type)
KEY = b"k" * 32


def location(name: str, state: State = State.SERVING) -> CacheLocation:
    return CacheLocation(name, "FileSystem", "ssd", state, 0.0, (LocationSpec("tp0", 10),))


def group(**fields: object) -> InstanceGroup:
    return InstanceGroup(**{"name": "team", "storages": ("ssd",), **fields})  # type: ignore[arg-type]


def instance(**fields: object) -> Instance:
    specs = (Spec("tp0", 10), Spec("tp1", 10))
    return Instance(**{"name": "chat", "group": "team", "block_size": 16, "specs": specs, **fields})  # type: ignore[arg-type]


class TestMoving:
    def test_a_location_goes_if_the_block_serves_at_another(self) -> None:
        draft = Draft({KEY: Block(locations=(location("old"), location("new")))})

        assert leave_for_others(draft, KEY, "old", lambda _: True, 5.0)

        block = draft.changes[KEY]
        assert block is not None
        assert [(each.id, each.state, each.until) for each in block.locations] == [
            ("old", State.DELETING, 5.0),
            ("new", State.SERVING, 0.0),
        ]

    @pytest.mark.parametrize(
        "block",
        [
            None,
            Block(locations=(location("old"),)),
            Block(locations=(location("old"), location("new", State.WRITING))),
            Block(locations=(location("old"), location("new", State.DELETING))),
        ],
    )
    def test_it_stays_if_no_other_location_serves(self, block: Block | None) -> None:
        draft = Draft({KEY: block})

        assert not leave_for_others(draft, KEY, "old", lambda _: True, 5.0)
        assert draft.changes == {}

    def test_it_stays_if_the_other_location_cannot_be_read(self) -> None:
        draft = Draft({KEY: Block(locations=(location("old"), location("new")))})

        assert not leave_for_others(draft, KEY, "old", lambda each: each.id == "old", 5.0)
        assert draft.changes == {}

    def test_it_stays_if_it_does_not_serve_itself(self) -> None:
        draft = Draft({KEY: Block(locations=(location("old", State.WRITING), location("new")))})

        assert not leave_for_others(draft, KEY, "old", lambda _: True, 5.0)


class TestPlacement:
    @pytest.mark.parametrize(
        ("accounts", "room"),
        [
            ({}, None),
            ({LEAF: Account(used=30, committed=30, limit=100)}, 70),
            ({LEAF: Account(used=100, committed=100, limit=100)}, 0),
            ({LEAF: Account(used=120, committed=120, limit=100)}, 0),
            ({ABOVE[-1]: Account(used=60, committed=80, limit=100)}, 20),
            # The rest of the instance's own reservation is committed, but the instance may use it.
            ({LEAF: Account(used=10, committed=30, reserved=30), ABOVE[-1]: Account(10, committed=90, limit=100)}, 30),
            ({LEAF: Account(used=30, committed=30, reserved=30), ABOVE[-1]: Account(30, committed=90, limit=100)}, 10),
            ({storage_account("ssd"): Account(used=95, committed=95, limit=100)}, 5),
            ({storage_account("other"): Account(used=95, committed=95, limit=100)}, None),
        ],
    )
    def test_the_room_is_that_of_the_fullest_account(self, accounts: dict[str, Account], room: int | None) -> None:
        assert bytes_that_fit(OWNER, DISK, accounts) == room

    def test_the_rest_goes_to_the_next_storage_with_room(self) -> None:
        full = Candidate("full", "FileSystem")
        accounts = {
            storage_account("ssd"): Account(limit=20),
            storage_account("full"): Account(used=5, committed=5, limit=5),
            storage_account("last"): Account(limit=15),
        }
        last = Candidate("last", "FileSystem")

        assert place([10, 10, 10, 10], OWNER, [DISK, full, last], accounts) == [DISK, DISK, last, None]
        assert place([10], OWNER, [], accounts) == [None]

    def test_what_the_first_storage_gets_counts_in_the_group_for_the_next(self) -> None:
        accounts = {storage_account("ssd"): Account(limit=20), ABOVE[-1]: Account(limit=30)}
        last = Candidate("last", "FileSystem")

        assert place([10, 10, 10, 10], OWNER, [DISK, last], accounts) == [DISK, DISK, last, None]


class TestQuota:
    # Another instance uses 6 of 10 bytes, and a later reservation of 8 bytes does not fit in addition to them.
    OVERCOMMITTED: ClassVar = {"a": Account(committed=8, reserved=8), "g": Account(used=6, committed=14, limit=10)}

    def test_an_instance_uses_its_late_reservation_as_far_as_bytes_are_free(self) -> None:
        after = charged(self.OVERCOMMITTED, [Charge(("a", "g"), used=4)])

        assert after["g"] == Account(used=10, committed=14, limit=10)

    def test_and_no_further(self) -> None:
        with pytest.raises(OverLimit, match="would exceed the limit of g"):
            charged(self.OVERCOMMITTED, [Charge(("a", "g"), used=5)])

    def test_another_instance_gets_none_of_it(self) -> None:
        with pytest.raises(OverLimit, match="would exceed the limit of g"):
            charged(self.OVERCOMMITTED, [Charge(("b", "g"), used=1)])


class TestSettings:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (
                {"total": Quota(watermark=0.5)},
                "group team: total has a watermark but no limit; set a limit",
            ),
            (
                {"types": {"S3": Quota(watermark=0.5)}},
                "group team: S3 has a watermark but no limit; set a limit",
            ),
            (
                {"instances": {"chat": {"S3": InstanceQuota(reserved=2, limit=1)}}},
                "group team: instance chat reserves more of S3 than its limit; lower reserved, or raise the limit",
            ),
            (
                {"zones": {"a/pool/chat": {"S3": InstanceQuota(reserved=2, limit=1)}}},
                "group team: zone a/pool/chat reserves more of S3 than its limit; lower reserved, or raise the limit",
            ),
            ({"zones": {"chat": {}}}, "group team: 'chat' is not a valid zone name; write NAMESPACE/POOL/OWNER"),
            (
                {"instances": {name: {"S3": InstanceQuota(reserved=LARGEST // 2 + 1)} for name in ("a", "b")}},
                f"group team: instances and zones together reserve more than {LARGEST} bytes; lower reserved",
            ),
            (
                {"types": {"S3": Quota(limit=5)}, "instances": {"chat": {"S3": InstanceQuota(reserved=6)}}},
                "group team: instances and zones reserve 6 bytes of S3, whose limit is 5; lower reserved, or raise "
                "the limit",
            ),
            (
                {"total": Quota(limit=5), "zones": {"a/pool/chat": {"S3": InstanceQuota(reserved=6)}}},
                "group team: instances and zones reserve 6 bytes, but the limit of the total is 5; lower reserved, or "
                "raise the limit",
            ),
        ],
    )
    def test_a_contradiction_is_named(self, fields: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            check_group(group(**fields))

    @pytest.mark.parametrize(
        "fields",
        [
            {"total": Quota(limit=5, watermark=0.5)},
            {"instances": {"chat": {"S3": InstanceQuota(reserved=2, limit=2)}}},
            {"instances": {"a": {"S3": InstanceQuota(reserved=LARGEST)}}},
            {"types": {"S3": Quota(limit=6)}, "instances": {"chat": {"S3": InstanceQuota(reserved=6)}}},
            {"types": {"S3": Quota(limit=6)}, "instances": {"chat": {"FileSystem": InstanceQuota(reserved=7)}}},
        ],
    )
    def test_settings_at_their_bounds_are_accepted(self, fields: dict[str, object]) -> None:
        check_group(group(**fields))

    def test_a_limit_may_fall_below_the_reservations_of_other_namespaces(self) -> None:
        known = group(instances={"chat": {"S3": InstanceQuota(reserved=6)}}, total=Quota(limit=6))

        check_group(group(instances={"chat": {"S3": InstanceQuota(reserved=6)}}, total=Quota(limit=5)), known)
        with pytest.raises(ValueError, match="instances and zones reserve 7 bytes, but the limit of the total is 5"):
            check_group(group(instances={"chat": {"S3": InstanceQuota(reserved=7)}}, total=Quota(limit=5)), known)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (
                {"specs": (Spec("tp0", 1), Spec("tp0", 2))},
                "instance chat: two specs have the same name; give each spec its own name",
            ),
            (
                {"spec_sets": {"-": ("tp0",)}},
                "instance chat: '-' is not a valid name of a spec set; use letters, digits, dots, underscores and "
                "hyphens, and begin and end with a letter or digit",
            ),
            *(
                (
                    {"spec_sets": {"full": wrong}},
                    "instance chat: spec set full must name at least one spec, and only specs of the instance",
                )
                for wrong in ((), ("tp2",), ("tp0", "tp2"))
            ),
        ],
    )
    def test_an_instance_that_contradicts_itself_is_refused(self, fields: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            check_instance(instance(**fields))

    def test_a_set_may_have_one_spec_or_all(self) -> None:
        made = instance(spec_sets={"one": ("tp1",), "all": ("tp0", "tp1")})
        check_instance(made)

        assert made.specs_of("one") == (Spec("tp1", 10),)
        assert made.specs_of("all") == made.specs_of("") == made.specs
        with pytest.raises(ValueError, match=r"its spec sets: one, all$"):
            made.specs_of("two")
        with pytest.raises(ValueError, match=r"its spec sets: none$"):
            instance().specs_of("two")


class TestSharing:
    RESERVED: ClassVar = {"FileSystem": InstanceQuota(reserved=5)}

    def test_quotas_of_an_instance_that_is_not_given_are_kept(self) -> None:
        known = group(instances={"theirs": self.RESERVED, "mine": self.RESERVED, "gone": self.RESERVED})
        registered = {"mine": instance(pool="a/pool"), "gone": None}

        assert shared(known, group(), "a", registered).instances == {"theirs": self.RESERVED}
        assert of_namespace(known, "a", registered).instances == {"mine": self.RESERVED, "gone": self.RESERVED}

    @pytest.mark.parametrize(
        ("fields", "what"),
        [
            ({"pools": ("a/pool", "b/pool")}, "the pool b/pool"),
            ({"pools": ("ab/pool",)}, "the pool ab/pool"),
            ({"instances": {"theirs": {}}}, "the instance theirs"),
            ({"instances": {"unknown": {}}}, "the instance unknown"),
            ({"zones": {"b/pool/chat": {}}}, "the zone b/pool/chat"),
        ],
    )
    def test_settings_of_another_namespace_are_refused(self, fields: dict[str, object], what: str) -> None:
        registered = {"theirs": instance(pool="b/pool")}
        message = (
            f"group team: settings for namespace a refer to {what}, which is not in that namespace; remove it from "
            "these settings"
        )

        for known in (None, group()):
            with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
                shared(known, group(**fields), "a", registered)
