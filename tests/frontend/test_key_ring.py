"""API keys from files, mounted and changed like a Secret."""

import hashlib
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.frontend.identities.key_file import MIN_KEY_LENGTH, KeyFileError, parse_keys
from tenantzone_runtime.frontend.identities.key_ring import FILES_PER_LOOK, STALE_SECONDS, KeyRing
from tenantzone_runtime.reload import FileStamp
from tests.frontend.harness import eventually
from tests.runtime.folders import project

keys = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=MIN_KEY_LENGTH).filter(
    lambda key: not key.startswith("sha256:")
)


def sha256(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def standing_still() -> float:
    """A clock by which no refresh is ever late."""
    return 0.0


def ring(folder, **files: str | bytes) -> KeyRing:
    project(folder, files)
    made = KeyRing(folder, clock=standing_still)
    made.refresh()
    return made


@given(st.lists(keys, min_size=1))
def test_keys_in_clear_and_hashed_are_the_same_keys(lines):
    clear = "\n".join(lines).encode()
    hashed = "\r\n".join(map(sha256, lines)).encode()
    assert parse_keys(clear) == parse_keys(hashed) == {hashlib.sha256(key.encode()).digest() for key in lines}


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_a_file_without_keys_is_a_tenant_without_keys(content):
    assert parse_keys(content) == frozenset()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"good-key\nwith space", "line 2: "),
        (b"sha256:abc", "line 1: expected 64 hexadecimal digits"),
        (b"sha256:" + b"g" * 64, "line 1: expected 64 hexadecimal digits"),
        ("schlüssel".encode(), "line 1: "),
        (b"tab\tbed-key", "line 1: "),
        (b"sesame", "line 1: a key must have at least 8 characters"),
        (b"first-key\x0bsecond-key", "line 1: "),
        (b"first-key\x1csecond-key", "line 1: "),
        (b"first-key\rsecond-key", "line 1: "),
        ("first-key\x85second-key".encode(), "line 1: "),
        ("first-key\u2028second-key".encode(), "line 1: "),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_bad_line_is_named_and_never_shown(content, error):
    with pytest.raises(KeyFileError, match=error) as refused:
        parse_keys(content)
    assert "schl" not in str(refused.value)


def test_without_a_folder_no_key_is_known_and_none_required(tmp_path):
    made = KeyRing(tmp_path / "absent")
    made.refresh()
    assert made.tenant_of(b"any") is None
    assert not made.required


def test_an_empty_folder_requires_no_key(tmp_path):
    assert not ring(tmp_path / "keys").required


def test_each_key_is_its_tenants(tmp_path):
    made = ring(tmp_path / "keys", acme="number-one\nnumber-two", burst=sha256("number-three"))
    assert made.required
    assert [made.tenant_of(key) for key in (b"number-one", b"number-two", b"number-three", b"number-four", b"")] == [
        "acme",
        "acme",
        "burst",
        None,
        None,
    ]


def test_a_hash_is_no_key(tmp_path):
    made = ring(tmp_path / "keys", acme=sha256("number-one"))
    assert made.tenant_of(sha256("number-one").encode()) is None


def at_rest(path, text):
    """A file that has not been written to for long."""
    path.write_text(text)
    os.utime(path, (1e9, 1e9))


def test_a_plain_folder_works_too(tmp_path):
    at_rest(tmp_path / "acme", "number-one")
    at_rest(tmp_path / ".hidden", "number-two")
    made = KeyRing(tmp_path)
    made.refresh()
    assert made.tenant_of(b"number-one") == "acme"
    assert made.tenant_of(b"number-two") is None
    (tmp_path / "acme").unlink()
    at_rest(tmp_path / "acme", "number-three")
    made.refresh()
    assert made.tenant_of(b"number-one") is None
    assert made.tenant_of(b"number-three") == "acme"


@pytest.fixture
def linked(tmp_path):
    """A plain folder whose files are links, as configuration managers create them; and the links' target folder."""
    store, folder = tmp_path / "store", tmp_path / "keys"
    store.mkdir()
    folder.mkdir()
    for name, key in (("acme", "number-one"), ("burst", "number-two")):
        at_rest(store / name, key)
        (folder / name).symlink_to(store / name)
    os.utime(folder, (1e9, 1e9))
    return folder, store


def test_a_link_that_leads_nowhere_any_more_revokes_its_keys_and_stops_no_rotation(linked):
    folder, store = linked
    made = KeyRing(folder)
    made.refresh()
    (store / "acme").unlink()
    at_rest(store / "burst", "number-three")
    made.refresh()
    assert made.tenant_of(b"number-one") is None
    assert made.tenant_of(b"number-two") is None
    assert made.tenant_of(b"number-three") == "burst"
    assert made.required


def test_a_link_whose_target_comes_later_counts_then(linked):
    folder, store = linked
    (store / "burst").unlink()
    made = KeyRing(folder)
    made.refresh()
    assert made.tenant_of(b"number-one") == "acme"
    at_rest(store / "burst", "number-two")
    made.refresh()
    assert made.tenant_of(b"number-two") == "burst"


def test_with_links_that_lead_nowhere_only_keys_are_required(linked):
    folder, store = linked
    for name in ("acme", "burst"):
        (store / name).unlink()
    made = KeyRing(folder)
    made.refresh()
    assert made.required


@pytest.mark.parametrize("kind", ["links in a circle", "a FIFO", "a link to a FIFO", "a folder", "a link to a folder"])
def test_what_is_no_file_stops_no_rotation(linked, kind):
    folder, store = linked
    made = KeyRing(folder)
    made.refresh()
    (folder / "acme").unlink()
    if kind == "links in a circle":
        (folder / "acme").symlink_to(folder / "acme")
    elif kind == "a folder":
        (folder / "acme").mkdir()
    elif kind == "a FIFO":
        os.mkfifo(folder / "acme")
    else:
        (os.mkfifo if kind == "a link to a FIFO" else os.mkdir)(store / "other")
        (folder / "acme").symlink_to(store / "other")
    at_rest(store / "burst", "number-three")
    made.refresh()
    assert made.tenant_of(b"number-two") is None
    assert made.tenant_of(b"number-three") == "burst"


@pytest.mark.parametrize("ahead_seconds", [0, 86400], ids=["now", "a clock that runs ahead"])
def test_half_a_key_in_a_plain_folder_is_none(tmp_path, monkeypatch, ahead_seconds):
    """As while an editor writes: the momentary content counts once it stays."""
    at_rest(tmp_path / "acme", "number-one")
    made = KeyRing(tmp_path)
    made.refresh()
    for written in ("number-t", "number-two"):
        (tmp_path / "acme").write_text(written)
        when = time.time() + ahead_seconds
        os.utime(tmp_path / "acme", (when, when))
        made.refresh()
        assert made.tenant_of(written.encode()) is None
        assert made.tenant_of(b"number-one") == "acme", "the one before stays meanwhile"
    eventually(lambda: (made.refresh(), made.tenant_of(b"number-two"))[1] == "acme")
    assert made.tenant_of(b"number-t") is made.tenant_of(b"number-one") is None


def test_a_projection_is_whole_at_once(tmp_path):
    made = ring(tmp_path / "keys", acme="number-one")
    project(tmp_path / "keys", {"acme": "number-two"})
    made.refresh()
    assert made.tenant_of(b"number-two") == "acme"


def test_rotation(tmp_path):
    made = ring(tmp_path / "keys", acme="older-key")
    project(tmp_path / "keys", {"acme": "older-key\nnewer-key"})
    made.refresh()
    assert made.tenant_of(b"older-key") == made.tenant_of(b"newer-key") == "acme"
    project(tmp_path / "keys", {"acme": "newer-key"})
    made.refresh()
    assert made.tenant_of(b"older-key") is None
    assert made.tenant_of(b"newer-key") == "acme"


def test_a_file_that_goes_away_revokes_its_keys_and_keys_stay_required(tmp_path):
    made = ring(tmp_path / "keys", acme="number-one")
    project(tmp_path / "keys", {})
    made.refresh()
    assert made.tenant_of(b"number-one") is None
    assert made.required


def test_a_folder_that_goes_away_revokes_nothing(tmp_path, caplog):
    made = ring(tmp_path / "keys", acme="number-one")
    (tmp_path / "keys").rename(tmp_path / "gone")
    made.refresh()
    made.refresh()
    assert made.tenant_of(b"number-one") == "acme"
    assert caplog.text.count("is missing; the keys stay unchanged") == 1


def test_what_is_no_folder_shuts_the_frontend(tmp_path, caplog):
    (tmp_path / "keys").write_text("number-one")
    made = KeyRing(tmp_path / "keys")
    made.refresh()
    assert made.required
    assert "can't be read: Not a directory" in caplog.text


def test_a_file_that_breaks_keeps_its_keys_and_harms_no_other(tmp_path, caplog):
    made = ring(tmp_path / "keys", acme="number-one", burst="number-two")
    project(tmp_path / "keys", {"acme": b"\xff", "burst": "number-three"})
    made.refresh()
    made.refresh()
    assert made.tenant_of(b"number-one") == "acme"
    assert made.tenant_of(b"number-two") is None
    assert made.tenant_of(b"number-three") == "burst"
    assert caplog.text.count("key file of tenant 'acme': not UTF-8") == 1


def test_a_file_that_was_never_good_has_no_keys_and_yet_keys_are_required(tmp_path):
    made = ring(tmp_path / "keys", acme="sha256:beef")
    assert made.required
    assert made.tenant_of(b"sha256:beef") is None


def test_a_key_of_two_tenants_belongs_to_neither_until_that_is_fixed(tmp_path, caplog):
    made = ring(tmp_path / "keys", acme="shared-key\nnumber-one", burst=sha256("shared-key"))
    assert made.tenant_of(b"shared-key") is None
    assert made.tenant_of(b"number-one") == "acme"
    assert "is refused, because it is in the key files of several tenants (acme, burst)" in caplog.text
    assert "shared-key" not in caplog.text
    project(tmp_path / "keys", {"acme": "number-one", "burst": "shared-key"})
    made.refresh()
    assert made.tenant_of(b"shared-key") == "burst"


@pytest.mark.parametrize(
    "name",
    [
        *("acme~", "acme.bak", "acme.swp", "acme.swo", "#acme#", "acme.orig", "acme.TMP", "acme.", "-acme", "ac me"),
        *("é", os.fsdecode(b"ac\xffme")),
    ],
)
def test_a_file_whose_name_is_no_tenants_is_left_out_and_yet_keys_are_required(tmp_path, caplog, name):
    (tmp_path / "keys").mkdir()
    at_rest(tmp_path / "keys" / name, "number-one")
    made = KeyRing(tmp_path / "keys")
    made.refresh()
    made.refresh()
    assert made.tenant_of(b"number-one") is None
    assert made.required
    assert caplog.text.count("is ignored, because its name is not a valid tenant name") == 1


@pytest.mark.parametrize("name", ["acme", "acme.example.com", "team_a", "Team-new", "a", "x.bakery"])
def test_whatever_a_tenantzone_may_name_is_a_tenant(tmp_path, name):
    assert ring(tmp_path / "keys", **{name: "number-one"}).tenant_of(b"number-one") == name


def test_no_key_is_kept_in_clear(tmp_path):
    made = ring(tmp_path / "keys", acme="open-sesame")
    assert b"open-sesame" not in repr(vars(made)).encode()
    assert "open-sesame" not in repr(made._files)


MANY = 3 * FILES_PER_LOOK + 1


@pytest.fixture
def examined(monkeypatch):
    """The paths that were examined since the list was cleared."""
    paths = []
    of = FileStamp.of
    monkeypatch.setattr(FileStamp, "of", lambda path: paths.append(path) or of(path))
    return paths


def key_of(number):
    return f"key-number-{number}"


def looks_until(made, is_there, at_most):
    """Refreshes until a condition holds. Returns how many refreshes that took."""
    for look in range(1, at_most + 1):
        made.refresh()
        if is_there():
            return look
    raise AssertionError(f"not after {at_most} looks")


class TestManyKeys:
    @pytest.fixture
    def plain(self, tmp_path):
        for number in range(MANY):
            at_rest(tmp_path / f"t{number}", key_of(number))
        made = KeyRing(tmp_path, clock=standing_still)
        made.refresh()
        return made

    def test_the_first_look_knows_all_of_them(self, plain):
        assert all(plain.tenant_of(key_of(number).encode()) == f"t{number}" for number in range(MANY))

    def test_a_look_examines_a_part_of_a_plain_folder(self, plain, examined):
        for _ in range(3):
            examined.clear()
            plain.refresh()
            assert len(examined) <= FILES_PER_LOOK + 1

    def test_a_change_in_a_plain_folder_is_seen_after_a_few_looks(self, plain, tmp_path):
        at_rest(tmp_path / f"t{MANY - 1}", "a-new-key")
        looks_until(plain, lambda: plain.tenant_of(b"a-new-key"), 4)
        assert plain.tenant_of(key_of(MANY - 1).encode()) is None

    def test_a_removed_and_a_new_file_are_seen_at_the_next_look(self, plain, tmp_path):
        (tmp_path / "t7").unlink()
        at_rest(tmp_path / "newcomer", "key-of-the-newcomer")
        plain.refresh()
        assert plain.tenant_of(key_of(7).encode()) is None
        assert plain.tenant_of(b"key-of-the-newcomer") == "newcomer"

    def test_files_that_do_not_settle_do_not_keep_others_from_being_examined(self, plain, tmp_path):
        ahead = time.time() + 86400
        for number in range(FILES_PER_LOOK + 1):
            os.utime(tmp_path / f"t{number}", (ahead, ahead))
        at_rest(tmp_path / f"t{MANY - 1}", "a-new-key")
        looks_until(plain, lambda: plain.tenant_of(b"a-new-key"), 5)

    def test_a_projection_comes_into_force_whole_after_a_few_looks(self, tmp_path, examined):
        made = ring(tmp_path / "keys", **{f"t{number}": key_of(number) for number in range(MANY)})
        project(tmp_path / "keys", {f"t{number}": key_of(number + 1) for number in range(MANY)})
        in_force = set()
        for _ in range(3):
            examined.clear()
            made.refresh()
            assert len(examined) <= FILES_PER_LOOK
            in_force.add((made.tenant_of(key_of(1).encode()), made.tenant_of(key_of(MANY).encode())))
        assert in_force == {("t1", None)}
        made.refresh()
        assert (made.tenant_of(key_of(1).encode()), made.tenant_of(key_of(MANY).encode())) == ("t0", f"t{MANY - 1}")

    @pytest.mark.parametrize("is_plain", [False, True])
    def test_a_look_that_comes_late_examines_all_of_them(self, tmp_path, monkeypatch, is_plain):
        """Refreshes come with requests, which may be an hour apart. A revoked key must not count for that long."""
        monkeypatch.setattr("tenantzone_runtime.frontend.identities.key_ring.FILES_PER_LOOK", 4)
        folder, now = tmp_path / "keys", [0.0]
        rotated = {f"t{number}": key_of(number) for number in range(13)}
        if is_plain:
            folder.mkdir()
            for name, key in rotated.items():
                at_rest(folder / name, key)
        else:
            project(folder, rotated)
        made = KeyRing(folder, clock=lambda: now[0])
        made.refresh()
        for turn in range(3):
            last = "t12"
            before, rotated[last] = rotated[last], "another-key" + "!" * turn
            if is_plain:
                at_rest(folder / last, rotated[last])
            else:
                project(folder, rotated)
            now[0] += STALE_SECONDS + 1
            made.refresh()
            assert made.tenant_of(before.encode()) is None
            assert made.tenant_of(rotated[last].encode()) == last

    def test_projections_that_are_swapped_ever_again_keep_no_revoked_key_for_long(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tenantzone_runtime.frontend.identities.key_ring.FILES_PER_LOOK", 4)
        keys = {f"t{number}": key_of(number) for number in range(13)}
        now = [0.0]
        project(tmp_path / "keys", keys)
        made = KeyRing(tmp_path / "keys", clock=lambda: now[0])
        made.refresh()
        for swap in range(7):
            project(tmp_path / "keys", {**keys, "t0": f"another-key-{swap}"})
            now[0] += 1
            made.refresh()
        assert made.tenant_of(key_of(0).encode()) is None

    def test_a_projection_that_is_swapped_before_all_is_read_never_comes_into_force(self, tmp_path):
        made = ring(tmp_path / "keys", **{f"t{number}": key_of(number) for number in range(MANY)})
        for first in (1, 2):
            project(tmp_path / "keys", {f"t{number}": key_of(number + first) for number in range(MANY)})
            made.refresh()
        looks_until(made, lambda: made.tenant_of(key_of(MANY + 1).encode()), 4)
        assert made.tenant_of(key_of(2).encode()) == "t0"
