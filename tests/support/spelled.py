"""Every spelling of a reward's name, the files that they name, and what is said of wrong ones at
every door alike.
"""

from __future__ import annotations

from pathlib import Path

OWN = (
    "from rm_gallery import reward_function\n\n\n@reward_function(score_range=(0, 1))\ndef "
    "{}(messages, {}**kwargs):\n    {}\n"
)
SOUND = 'return float(messages[-1].text.strip().endswith(f"<answer>{ground_truth}</answer>"))'
SPELLED = (
    "sound.py",
    "sound.py:own",
    "func:sound.py",
    "func:sound.py:own",
    "accuracy",
    "grader:string_match",
    "string_match",
)
"""A reward's name in every form that needs no model; the first four name one reward."""
JUDGED = ("relevance", "grader:relevance", "rubric:polite.yaml", "base_helpfulness_pointwise")
"""Names of rewards that a model judges."""
WRONG = {
    "absent.py": "absent.py cannot be read",
    "absent.py:own": "absent.py cannot be read",
    "sound.py:onw": "sound.py:onw: There is no reward in sound.py 'onw'. Did you mean own?",
    "func:sound.py:onw": "sound.py:onw: There is no reward in sound.py 'onw'. Did you mean own?",
    "several.py": "several.py: say which reward is meant",
    "func:several.py": "several.py: say which reward is meant",
    "damaged.py": "damaged.py cannot be loaded: SyntaxError",
    "func:damaged.py:own": "damaged.py cannot be loaded: SyntaxError",
    "fnuc:sound.py:own": "There is no prefix of rewards 'fnuc:'. Did you mean func:",
    "acuracy": "There is no reward 'acuracy'. Did you mean accuracy",
    "grader:string_mach": "There is no grader 'string_mach'. Did you mean string_match",
    "judge:prometheus2-absolut": "There is no judge 'prometheus2-absolut'. Did you mean prometheus2-absolute",
}
"""Wrong names, and what is said of each."""
NO_MODEL = {"bt:absent": "There is no trained model in 'absent'"}
"""A right name of a model that is not there: refused where scores are made, not where they are
explained or estimated.
"""


def write_files(folder: Path) -> None:
    """The files that the names above spell."""
    own = OWN.format("own", "", "return 1.0")
    (folder / "sound.py").write_text(OWN.format("own", "ground_truth='', ", SOUND))
    (folder / "several.py").write_text(own + own.rpartition("\n\n\n")[2].replace("own", "other"))
    (folder / "damaged.py").write_text("def own(:\n")
    (folder / "polite.yaml").write_text("[{criterion: Is polite., points: 1}]\n")
