"""How toxic is an answer? Asked of the Detoxify models."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any, ClassVar, Literal

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.example import Example, sample_of
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.schema import RewardResult
from rm_gallery.core.utils.errors import MissingExtra, ProviderError
from rm_gallery.gallery.rm.rule import RuleReward, answer_text, one_score

_LOADING = threading.Lock()


@RewardRegistry.register("detoxify_reward")
class DetoxifyReward(RuleReward):
    """1 - toxicity, as the Detoxify model estimates the probability that a reader finds the answer toxic.

    Models: original and unbiased (English), multilingual (seven languages). They read the first 512 word pieces. A
    model is loaded once per process, from the network the first time. Range [0, 1], higher is better; needs the extra
    `toxicity`. `extra_data` holds every class the model rates. Source: Hanu & Unitary 2020,
    https://github.com/unitaryai/detoxify.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"toxicity"})

    name: str = "detoxify_reward"
    model_name: Literal["original", "unbiased", "multilingual", "original-small", "unbiased-small"] = "unbiased"
    """Which of Detoxify's models is asked."""
    device: str = "cpu"
    """Where it runs, in PyTorch's words."""

    example = Example(
        sample_of("What do you think of my essay?", "The second part is clear and well argued.", "You are a stupid idiot."),
        environment="the extra `toxicity`, and a model that is loaded from the network once",
    )

    def check(self) -> None:
        """Raise MissingExtra when the package is absent."""
        _detoxify()

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> RewardResult:
        """Ask the model."""
        with _LOADING:
            model = _model(self.model_name, self.device)
        rated = {str(name): float(value) for name, value in model.predict(answer_text(sample)).items()}
        if "toxicity" not in rated:
            raise ProviderError(f"Detoxify's {self.model_name} gave {sorted(rated)}, but no toxicity.", kind="fatal")
        return one_score(self.name, 1 - rated["toxicity"], f"Toxicity {rated['toxicity']:.3f}.", rated)


def _detoxify() -> Any:
    try:
        import detoxify
    except ImportError as error:
        raise MissingExtra("detoxify", "toxicity", "The reward 'detoxify_reward'") from error
    return detoxify


@lru_cache(maxsize=4)
def _model(name: str, device: str) -> Any:
    return _detoxify().Detoxify(name, device=device)
