"""`hf-prm:` reads one probability per step at the step's separator, and makes the answer's number
of them by name.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import DataSample, MessageRole, Step
from rm_gallery.gallery.rm.trained.hf import HFProcessReward
from tests.support.checkpoints import make_checkpoint, require_torch
from tests.support.samples import make_sample

STEPS = ["2 * 3 = 6", "2 + 6 = 9 ", "So the answer is 9."]
QUERY = "What is 2 + 2 * 3?"


def stepped(*answers: list[str] | None) -> DataSample:
    """A sample whose answers have these steps."""
    sample = make_sample(*["9"] * len(answers), query=QUERY, unique_id="p")
    for output, steps in zip(sample.output, answers, strict=True):
        output.steps = (
            None
            if steps is None
            else [Step(role=MessageRole.ASSISTANT, content=text) for text in steps]
        )
    return sample


def step_scores(sample: DataSample) -> list[list[float | None]]:
    """Per output the scores of its steps."""
    return [[step.reward.score for step in output.steps or ()] for output in sample.output]


@pytest.mark.system("torch")
class TestReading:
    """Where a score is read, against a use of transformers by hand."""

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        require_torch()

    @pytest.mark.parametrize(("model", "made", "settings"), [
        ("LlamaForTokenClassification", {"num_labels": 2}, {}),
        ("LlamaForTokenClassification", {"num_labels": 1}, {"separator": "\n"}),
        ("LlamaForTokenClassification", {"num_labels": 3}, {"label": "LABEL_2"}),
        ("LlamaForCausalLM", {}, {"tokens": ["+", "-"], "separator": " ки\n"}),
        ("LlamaForTokenClassification", {"num_labels": 2, "chat": None}, {"separator": "\n\n"}),
    ])  # fmt: skip
    def test_each_step_is_read_at_its_separator(
        self,
        model: str,
        made: dict[str, Any],
        settings: dict[str, Any],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        import torch
        import transformers

        folder = make_checkpoint(tmp_path, model, **made)
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
        kind = "AutoModelForCausalLM" if "tokens" in settings else "AutoModelForTokenClassification"
        network: Any = getattr(transformers, kind).from_pretrained(folder).eval()
        separator = settings.get("separator", "<extra_0>")
        start = (
            f"{QUERY}\n\n"
            if made.get("chat", "") is None
            else f"<|turn|>user\n{QUERY}<|end|>\n<|turn|>assistant\n"
        )
        expected = []
        # a causal model sees no later step, so each can be asked for alone
        for number in range(1, len(STEPS) + 1):
            text = start + "".join(step + separator for step in STEPS[:number])
            with torch.inference_mode():
                # a chat template would have written the opening mark
                opened = made.get("chat", "") is None
                ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
                ids = (
                    torch.cat([torch.tensor([[tokenizer.bos_token_id]]), ids], 1) if opened else ids
                )
                logits = network(ids).logits[0, -1]
            if "tokens" in settings:
                plus, minus = (logits[tokenizer.get_vocab()[token]].item() for token in "+-")
                expected.append(1 / (1 + math.exp(minus - plus)))
            elif made["num_labels"] == 1:
                expected.append(torch.sigmoid(logits[0]).item())
            else:
                expected.append(torch.softmax(logits, 0)[-1].item())
        scored = HFProcessReward(folder, **settings).evaluate(
            stepped(STEPS, STEPS[:1], STEPS[::-1])
        )
        found = step_scores(scored)
        assert found[0] == pytest.approx(expected, abs=1e-5)
        assert found[1] == pytest.approx(expected[:1], abs=1e-5)
        assert [len(each) for each in found] == [3, 1, 3]
        for side in ("left", "none"):  # for models that padding on the right disturbs
            monkeypatch.setattr(
                "rm_gallery.gallery.rm.trained.local_model.LocalModel._find_padding",
                lambda _, s=side: s,
            )
            other = HFProcessReward(folder, **settings, batch_size=7).evaluate(
                stepped(STEPS, STEPS[:1], STEPS[::-1])
            )
            assert step_scores(other) == [pytest.approx(each, abs=1e-5) for each in found]

    def test_a_step_cannot_hold_the_separator_mark(self, tmp_path: Path) -> None:
        folder = make_checkpoint(tmp_path, "LlamaForTokenClassification", num_labels=2)
        found = step_scores(HFProcessReward(folder).evaluate(stepped(["a <extra_0> b", "", "c"])))[
            0
        ]
        assert len([score for score in found if score is not None]) == 3

    def test_a_missing_separator_is_asked_for(self, tmp_path: Path) -> None:
        from rm_gallery.core.utils.errors import ConfigError

        folder = make_checkpoint(tmp_path, "LlamaForCausalLM")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            text = (folder / name).read_text(encoding="utf-8").replace("<extra_0>", "<other_0>")
            (folder / name).write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match="separator="):
            HFProcessReward(folder, tokens=["+", "-"]).evaluate(stepped(STEPS))

    def test_too_long_is_unscored_at_every_step(self, tmp_path: Path) -> None:
        folder = make_checkpoint(tmp_path, "LlamaForTokenClassification", num_labels=2)
        scored = HFProcessReward(folder, max_length=80).evaluate(stepped(["x" * 100, "y"], ["z"]))
        assert [[score is None for score in each] for each in step_scores(scored)] == [
            [True, True],
            [False],
        ]
        reasons = [
            issue.reason for step in scored.output[0].steps or () for issue in step.reward.issues
        ]
        assert reasons == ["too_long", "too_long"]
