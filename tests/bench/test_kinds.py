"""The conclusions of the bench of kinds from what it has seen."""

import json
from collections import Counter

import httpx
import pytest

from bench.kinds import story
from bench.kinds.__main__ import _options
from bench.kinds.kinds import KINDS
from bench.kinds.results import Drafts, Result, equal, reason_in, table
from bench.kinds.story import Answer, Story, question, record, request

CLIENT = httpx.Client


def answer(cached=0, tokens=(1, 2), prompt=960):
    return Answer(tokens=tuple(tokens), prompt_tokens=prompt, cached_tokens=cached)


def reported(*, before=928, across=0, after=928, tokens=(1, 2)):
    answers = [answer(cached, tokens) for cached in (0, before, across, after)]
    return Story(*answers, flood=(answer(tokens=(3,), prompt=512), answer(tokens=(4,), prompt=512)))


class TestResults:
    def test_the_story_holds_where_the_cache_stays_and_each_token_is_stocks(self):
        assert Result("full", "Llama", zones=reported(), stock=reported(after=0)).holds

    @pytest.mark.parametrize(
        "zones",
        [
            pytest.param(reported(after=896), id="a block is lost"),
            pytest.param(reported(across=32), id="another tenant finds a block"),
            pytest.param(reported(before=0, after=0), id="nothing was cached"),
            pytest.param(reported(tokens=(1, 9)), id="another token"),
            pytest.param("it is refused", id="it did not run"),
        ],
    )
    def test_else_it_does_not(self, zones):
        assert not Result("full", "Llama", zones=zones, stock=reported(after=0)).holds

    def test_tokens_are_compared_one_by_one_in_all_answers(self):
        assert equal(reported().answers, reported(tokens=(1, 9)).answers) == (6, 10, False)
        assert equal(reported().answers, reported().answers) == (10, 10, True)

    def test_the_table_has_what_each_side_found_cached(self):
        row = table(
            [Result("full", "Llama", zones=reported(), stock=reported(after=0), drafts=Drafts(9, 7))]
        ).splitlines()[2]
        assert row == "| full | Llama | 960 | 928 | 0 | 928 | 0 | 6 of 6 | 10 of 10 | 7 of 9 right |"

    def test_where_sides_differ_before_the_flood_both_are_shown(self):
        row = table([Result("full", "Llama", zones=reported(before=896), stock=reported())]).splitlines()[2]
        assert "| 896, stock 928 |" in row

    def test_why_an_engine_did_not_run_is_shown_once_in_its_own_words(self):
        both = table([Result("x", "X", zones="no kernel", stock="no kernel")])
        row, _, reason = both.splitlines()[2:]
        assert (row, reason) == ("| x | X | - | - | - | - | - | - | - | - |", "- x: stock vLLM did not run: no kernel")
        ours = table([Result("x", "X", zones="hybrid models (why)", stock=reported(after=0))])
        assert ours.splitlines()[2:] == [
            "| x | X | 960 | -, stock 928 | -, stock 0 | - | 0 | - | - | - |",
            "",
            "- x: with zones: hybrid models (why)",
        ]


class TestReasons:
    def test_a_log_shows_the_first_error(self):
        log = "\n".join(
            (
                "WARNING can't: `OSError: too many files`",
                "(EngineCore pid=7) ERROR [core.py:3] NotImplementedError: no kernel",
                "RuntimeError: failed",
            )
        )
        assert reason_in(log) == "NotImplementedError: no kernel"

    def test_without_an_error_it_is_the_last_line(self):
        assert reason_in("INFO loading\nKilled\n") == "Killed"
        assert reason_in("") == "nothing was said"


class FakeEngine:
    """Remembers each salt's prompts for as long as its pool has room, as an engine does."""

    url = "http://engine"
    model = "tiny"

    def __init__(self, room, *, zones):
        self.room = room
        self.zones = zones
        self.kept: list[tuple[str, str]] = []
        self.asked = Counter()

    def headers_of(self, tenant):
        return {"Authorization": f"Bearer {tenant}"} if self.zones else {}

    def answer(self, asked):
        body = json.loads(asked.content)
        who = asked.headers.get("authorization", body.get("cache_salt"))
        self.asked[who] += 1
        tokens = len(body["prompt"].split())
        known = (who, body["prompt"]) in self.kept
        if not known:
            self.kept.append((who, body["prompt"]))
        mine = [each for each in self.kept if each[0] == who] if self.zones else self.kept
        for oldest in mine[: -self.room]:
            self.kept.remove(oldest)
        usage = {"prompt_tokens": tokens, "prompt_tokens_details": {"cached_tokens": tokens - 1 if known else 0}}
        return httpx.Response(200, json={"choices": [{"token_ids": [7] * body["max_tokens"]}], "usage": usage})


@pytest.fixture
def story_on(monkeypatch):
    """Runs the story on a fake engine."""

    def run_on(engine):
        transport = httpx.MockTransport(engine.answer)
        monkeypatch.setattr(story.httpx, "Client", lambda **options: CLIENT(transport=transport, **options))
        return record(engine, 4000, pictures=False, say=lambda message: None)

    return run_on


class TestStory:
    def test_a_flood_is_what_takes_a_tenants_cache(self, story_on):
        stock = story_on(FakeEngine(4, zones=False))
        zones = story_on(FakeEngine(4, zones=True))
        assert stock.before.cached_tokens == zones.before.cached_tokens == story.PROMPT_TOKENS - 1
        assert (stock.after.cached_tokens, zones.after.cached_tokens) == (0, story.PROMPT_TOKENS - 1)
        assert stock.across.cached_tokens == zones.across.cached_tokens == 0
        assert zones.flooded_tokens >= 4000
        assert Result("full", "Llama", zones=zones, stock=stock).holds

    def test_an_engine_that_refuses_ends_it_with_what_it_says(self, story_on):
        engine = FakeEngine(4, zones=False)
        engine.answer = lambda asked: httpx.Response(400, text="too long")
        with pytest.raises(RuntimeError, match="the engine answers 400: too long"):
            story_on(engine)

    def test_each_question_is_another_and_the_same_each_time(self):
        assert question("one", 9, pictures=False) == question("one", 9, pictures=False)
        assert question("one", 9, pictures=False) != question("two", 9, pictures=False)
        first, second = (question(seed, 9, pictures=True) for seed in ("one", "two"))
        assert first.picture != second.picture
        assert first.picture.startswith(b"\x89PNG")

    def test_a_picture_goes_with_a_message(self):
        path, body = request(question("one", 3, pictures=True))
        picture, text = body["messages"][0]["content"]
        assert path == "/v1/chat/completions"
        assert picture["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
        assert len(text["text"].split()) == 3


def test_each_kinds_flags_name_its_blocks_and_its_drafts(tmp_path):
    for kind in KINDS.values():
        flags = kind.flags_in(tmp_path)
        assert flags[:2] == ("--num-gpu-blocks-override", str(kind.blocks))
        if kind.speculation is not None:
            speculation = json.loads(flags[flags.index("--speculative-config") + 1])
            assert ("model" in speculation) == (kind.make_draft is not None)


def test_without_a_name_all_kinds_are_tried(capsys):
    assert _options([]).kinds == list(KINDS)
    assert _options(["gemma3", "full"]).kinds == ["gemma3", "full"]
    with pytest.raises(SystemExit):
        _options(["gemma4"])
    assert "'gemma4' is none of full, n-gram" in capsys.readouterr().err
