"""Deploying: metric folders become a version of an evaluator in the local store; nothing leaves this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from rm_gallery.core.engine import loop
from rm_gallery.core.utils.errors import SandboxUnavailable
from rm_gallery.evaluation.bundle import Bundle, Mode, bundle_folders
from rm_gallery.evaluation.pool import EvaluatorPool, missing_requirements
from rm_gallery.evaluation.store import Store


def create_evaluation(
    evaluator_id: str,
    metric_folders: Sequence[str | os.PathLike[str]] | None = None,
    multi_metrics: bool = False,
    folder: str | os.PathLike[str] | None = None,
    python_code_to_evaluate: str | None = None,
    python_file_name_for_code: str = "main.py",
    criterion_name_for_code: str = "default_code_criterion",
    criterion_description_for_code: str | None = None,
    display_name: str | None = None,
    description: str | None = None,
    force: bool = False,
    reward_function_mode: Mode | None = None,
    account_id: str | None = None,
    api_key: str | None = None,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    check: bool = True,
) -> dict[str, Any]:
    """Store metric folders as a new version of an evaluator; the server's next request for it runs that version.

    Args:
        evaluator_id: up to 63 letters, digits, "-", "_" and "."; the last part of its address.
        metric_folders: `name=path` each; a folder holds `main.py` with a function `evaluate`.
        multi_metrics: accepted and without effect: a function may always report several metrics.
        folder: instead: one such folder, or one whose sub-folders are.
        python_code_to_evaluate: instead: the text of one `main.py`.
        python_file_name_for_code: its name, `main.py`.
        criterion_name_for_code: the name of that metric.
        criterion_description_for_code: the description where `description` is not given.
        display_name: what people call it; default the id.
        description: what it measures.
        force: a further version where the id is there; its older versions stay and can be gone back to.
        reward_function_mode: "pointwise" or "batch", where `@reward_function(mode=…)` does not say it.
        account_id: accepted and without effect, as is `api_key`: there is no account.
        api_key: see account_id.
        store: an open store, or its URL or path; default RM_GALLERY_STORE, else the user's own.
        check: load the code in the sandbox first, where there is one and what it requires is installed.

    Returns:
        `name` ("accounts/local/evaluators/ID"), `id`, `version`, `hash`, `requirements`, `skipped` (files left out) and
        the rest of what is known of the version.

    Raises:
        ConfigError: folders, texts or the id do not fit; EvaluatorExists: the id is taken and `force` is not given.
        EvaluatorBroken: the code does not load; nothing is stored.
        StoreError: the database failed; nothing is stored.
    """
    bundle = bundle_folders(
        metric_folders,
        folder=folder,
        code=python_code_to_evaluate,
        code_file=python_file_name_for_code,
        code_name=criterion_name_for_code,
        mode=reward_function_mode,
    )
    said = description or (criterion_description_for_code if python_code_to_evaluate is not None else None) or ""
    with contextlib.ExitStack() as stack:
        opened = store if isinstance(store, Store) else stack.enter_context(Store.open(store))
        opened.check_free(evaluator_id, force=force)
        if check and not missing_requirements(bundle.requirements):
            load_once(bundle)
        deployed = opened.save(evaluator_id, bundle, display_name=display_name or "", description=said, force=force)
    return {**deployed.as_dict(), "skipped": list(bundle.skipped)}


def load_once(bundle: Bundle) -> None:
    """Load the code in a sandbox and end it; raises EvaluatorBroken. Without bubblewrap nothing is tried."""

    async def load() -> None:
        pool = EvaluatorPool(bundle, workers=1)
        try:
            await pool.ready()
        finally:
            await pool.close()

    with contextlib.suppress(SandboxUnavailable):
        loop.run(load(), "create_evaluation", "asyncio.to_thread(create_evaluation, …)")
