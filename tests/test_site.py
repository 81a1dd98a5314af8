"""The documentation as a site: what its copy button copies."""

import importlib.util
from pathlib import Path

SPEC = importlib.util.spec_from_file_location("docs_site", Path(__file__).parents[1] / "docs" / "site.py")
assert SPEC is not None
assert SPEC.loader is not None
site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site)

BLOCK = """$ cat > pool.yaml <<'EOF'
kind: RewardPool
EOF
$ kubectl apply \\
    -f pool.yaml
rewardpool.rewardpool.dev/rules created
$ rewardpool score "a" --pool rules
0.984
"""
COPIED = """cat > pool.yaml <<'EOF'
kind: RewardPool
EOF
kubectl apply \\
    -f pool.yaml
rewardpool score "a" --pool rules"""


def test_commands_are_copied_without_prompt_and_output() -> None:
    assert site.commands(BLOCK) == COPIED


def test_the_button_of_a_block_of_commands_copies_them_alone() -> None:
    shown = '<div class="highlight"><pre><span></span><code><span>$ echo &lt;1\n</span>&lt;1\n</code></pre></div>'
    found = site.on_page_content(shown, None, None, None)
    assert found == shown.replace("<code>", '<code data-copy="echo &lt;1">')


def test_other_blocks_are_copied_as_they_are() -> None:
    shown = '<div class="highlight"><pre><span></span><code>kind: RewardPool\n</code></pre></div>'
    assert site.on_page_content(shown, None, None, None) == shown
