"""The page in a real browser: it signs in by the link, shows the pools, and asks nobody else for anything."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.browser import Tab, browser, chromium, serving_scripted_pools

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(chromium() is None, reason="chromium is not installed: `make packages` installs it"),
]


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[str]:
    async with serving_scripted_pools(tmp_path) as link:
        yield link


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browser(tmp_path / "profile") as tab:
        yield tab


async def test_the_link_shows_the_pools_and_all_of_the_chosen_one(link: str, tab: Tab) -> None:
    await tab.open(f"{link}&pool=rl/helpfulness")
    assert "rl/helpfulness6/8" in await tab.wait_for("#list")
    assert "6 → 8 replicas" in await tab.wait_for("#changes")
    assert "8 workers" in await tab.wait_for("#workers")
    assert "grpo-7LiveRollout2,048" in await tab.wait_for("#jobs")
    assert "vLLM API server" in await tab.wait_for("#log-text")
    assert "now" in await tab.wait_for("#chart svg text:last-of-type") + await tab.wait_for("#chart svg")
    assert tab.problems == []


async def test_another_time_is_drawn_with_its_rates_and_latencies(link: str, tab: Tab) -> None:
    await tab.open(f"{link}&pool=rl/helpfulness")
    assert "60 min" in await tab.wait_for("#picture svg")
    await tab.evaluate(
        "const over = document.querySelector('#chart select'); over.value = 'week';"
        " over.dispatchEvent(new Event('change'))"
    )
    await tab.wait_for("#picture svg[aria-label$='1 week'] text")
    assert "7 d" in await tab.wait_for("#picture svg")
    assert await tab.evaluate("document.querySelectorAll('#picture .rate, #picture .mean, #picture .p95').length") >= 3
    assert tab.problems == []


async def test_the_scores_of_each_job_are_drawn_and_their_totals_stand_beside(link: str, tab: Tab) -> None:
    await tab.open(f"{link}&pool=rl/helpfulness")
    assert "rank 0 alone" in await tab.wait_for("#scores")
    await tab.wait_for("#score-pictures svg text")
    drawn = "[...document.querySelectorAll('#score-pictures svg')].map((one) => one.getAttribute('aria-label'))"
    assert await tab.evaluate(drawn) == ["Scores of grpo-7 over 1 hour", "Scores of rloo-ablation-3 over 1 hour"]
    for kind in ("score", "spread", "policy", "infra", "retries"):
        assert await tab.evaluate(f"document.querySelectorAll('#score-pictures svg .{kind}').length") > 0, kind
    assert tab.problems == []


async def test_a_log_is_searched_and_stays_so_while_it_follows(link: str, tab: Tab) -> None:
    async def type_(text: str) -> None:
        await tab.evaluate(
            f"document.getElementById('log-filter').value = {text!r};"
            " document.getElementById('log-filter').dispatchEvent(new Event('input'))"
        )

    await tab.open(f"{link}&pool=rl/helpfulness")
    await tab.wait_for("#log-text")
    await type_("[LOGGERS")
    assert (await tab.wait_for("#log-text mark"), (await tab.wait_for("#log-note"))[:6]) == ("[loggers", "3 of 6")
    await tab.evaluate(
        "const choice = document.getElementById('log-name'); choice.value = choice.options[1].value;"
        " choice.dispatchEvent(new Event('change'))"
    )
    assert await tab.wait_for("#log-text mark") == "[loggers"
    assert (await tab.wait_for("#log-text")).count("\n") == 3
    await type_("no such line")
    assert (await tab.wait_for("#log-note")).startswith("0 of 6")
    assert await tab.evaluate("document.getElementById('log-text').textContent") == ""
    assert tab.problems == []


async def test_the_manifest_is_read_when_it_is_opened(link: str, tab: Tab) -> None:
    await tab.open(f"{link}&pool=rl/judge")
    await tab.wait_for("#manifest summary")
    assert await tab.evaluate("document.getElementById('manifest-text').textContent") == ""
    await tab.evaluate("document.querySelector('#manifest summary').click()")
    assert "source: hf://Qwen/Qwen3-14B" in await tab.wait_for("#manifest-text")
    assert tab.problems == []


async def test_the_token_leaves_the_address_and_scripts_do_not_see_the_session(link: str, tab: Tab) -> None:
    await tab.open(link)
    await tab.wait_for("#tiles")
    assert "token" not in await tab.evaluate("location.href")
    assert await tab.evaluate("document.cookie") == ""


async def test_a_wrong_token_leads_to_the_form_with_words(link: str, tab: Tab) -> None:
    await tab.open(link.replace("token=", "token=wrong-"))
    assert "rewardpool page" in await tab.wait_for("form.sign-in")


async def test_what_a_pool_says_is_never_markup(link: str, tab: Tab) -> None:
    await tab.open(f"{link}&pool=rl/process")
    assert "<b>Tried</b>" in await tab.wait_for("#title .headline")
    assert await tab.evaluate("document.querySelectorAll('#title b').length") == 0
