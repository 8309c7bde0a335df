"""A checkpoint that cannot give scores is refused in one line before anything is scored, never
guessed at.
"""

from __future__ import annotations

import builtins
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError
from rm_gallery.core.utils.errors import MissingExtra
from rm_gallery.gallery.rm.trained.hf import HFProcessReward, HFReward
from tests.support.checkpoints import make_checkpoint, make_classifier, require_torch
from tests.support.samples import make_sample, scores

SAMPLE = make_sample("yes", "no")


def test_without_torch_the_message_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None)
    with pytest.raises(MissingExtra, match="'torch' .of the extra 'hf'.*pip install torch"):
        HFReward("some/model").evaluate(SAMPLE)


@pytest.mark.system("torch")
class TestCheckpoints:
    """What only shows when a checkpoint is opened."""

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        require_torch()

    @pytest.mark.parametrize("path", ["./no/such/folder", "/no/such/folder", "a/b/c"])
    def test_no_folder(self, path: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no such folder"):
            HFReward(path).evaluate(SAMPLE)
        with pytest.raises(ConfigError, match="no config.json"):
            HFReward(tmp_path).evaluate(SAMPLE)

    @pytest.mark.parametrize(("model", "made", "settings", "says"), [
        ("LlamaForCausalLM", {}, {}, "holds no weights for score.weight.*random"),
        ("LlamaForTokenClassification", {"num_labels": 2}, {}, "name it hf-prm:"),
        ("LlamaForSequenceClassification", {"num_labels": 3}, {}, "gives 3 numbers .LABEL_0, LABEL_1, LABEL_2"),
        ("LlamaForSequenceClassification", {"num_labels": 3}, {"label": "LABEL_9"}, "no label.*LABEL_9.*LABEL_0"),
        ("LlamaForSequenceClassification", {"chat": None}, {"chat_template": "chat"}, "has no chat template"),
        ("LlamaForCausalLM", {}, {"tokens": ["Yes", "N"]}, "'Yes' is not one token"),
        ("LlamaForCausalLM", {}, {"head": "tokens"}, "head=tokens"),
        ("LlamaForCausalLM", {}, {"head": "value"}, "no value head"),
        ("LlamaForSequenceClassification", {}, {"device": "tpu9000"}, "device is 'tpu9000'"),
    ])  # fmt: skip
    def test_no_score_to_be_had(
        self, model: str, made: dict[str, Any], settings: dict[str, Any], says: str, tmp_path: Path
    ) -> None:
        folder = make_checkpoint(tmp_path, model, **made)
        with pytest.raises(ConfigError, match=says):
            HFReward(folder, **settings).evaluate_batch([SAMPLE] * 3)

    def test_a_missing_separator(self, tmp_path: Path) -> None:
        folder = make_checkpoint(tmp_path, "LlamaForSequenceClassification")
        with pytest.raises(ConfigError, match="name it hf:"):
            HFProcessReward(folder).evaluate(
                {"output": [{"answer": {"role": "assistant"}, "steps": [{"content": "a"}]}]}
            )

    def test_code_inside_a_checkpoint_does_not_run_unasked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = make_classifier(tmp_path)
        config = (folder / "config.json").read_text(encoding="utf-8")
        own = (
            '"auto_map": {"AutoConfig": "own.Own", "AutoModelForSequenceClassification": '
            '"own.Model"}, "model_type": "own_",'
        )
        (folder / "config.json").write_text(
            config.replace('"model_type": "llama",', own), encoding="utf-8"
        )
        (folder / "own.py").write_text(
            "import builtins\nbuiltins.own_ran = True\n", encoding="utf-8"
        )
        monkeypatch.setattr("builtins.input", lambda *_: "n")
        with pytest.raises(ConfigError, match="cannot be loaded"):
            HFReward(folder).evaluate(SAMPLE)
        assert not hasattr(builtins, "own_ran")

    def test_damaged_weights(self, tmp_path: Path) -> None:
        folder = make_classifier(tmp_path)
        (folder / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
        with pytest.raises(ConfigError, match="cannot be loaded"):
            HFReward(folder).evaluate(SAMPLE)

    def test_other_weights_are_another_reward_and_are_loaded_anew(self, tmp_path: Path) -> None:
        folder = make_classifier(tmp_path, seed=1)
        first = HFReward(folder)
        before, described = scores(first.evaluate(SAMPLE)), first.describe()
        make_classifier(tmp_path, seed=2)
        assert scores(first.evaluate(SAMPLE)) != before
        changed = [
            HFReward(folder),
            HFReward(folder, dtype="bfloat16"),
            HFReward(folder, chat_template="plain"),
        ]
        assert len({reward.settings_hash for reward in changed} | {first.settings_hash}) == 4
        assert described.keys() == HFReward(folder).describe().keys()
        assert (
            HFReward(folder, batch_size=2, device="cpu").settings_hash == changed[0].settings_hash
        )
