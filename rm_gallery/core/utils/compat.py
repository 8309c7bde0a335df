"""Names of earlier versions, and names and import paths of OpenJudge: imports of them lead to today's."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

EARLIER: dict[str, dict[str, str]] = {
    "rm_gallery.core.graders.bridge": {
        "as_grader": "rm_gallery.core.graders.base:as_grader",
        "as_reward": "rm_gallery.core.graders.base:as_reward",
    },
    "rm_gallery.core.stats.denominator": {
        "closed": "rm_gallery.core.stats.denominator:worst_case_bounds",
        "Closed": "rm_gallery.core.stats.denominator:Bounded",
        "Lookout": "rm_gallery.core.stats.denominator:MissingnessTest",
    },
    "rm_gallery.core.stats.clustered": {
        "ClusteredMean": "rm_gallery.core.stats.uncertainty:Estimate",
        "clustered_mean": "rm_gallery.core.stats.uncertainty:clustered_mean",
        "cluster_numbers": "rm_gallery.core.stats.columns:cluster_numbers",
        "combined": "rm_gallery.core.stats.uncertainty:pooled",
        "intraclass_correlation": "rm_gallery.core.stats.uncertainty:intraclass_correlation",
        "likeness": "rm_gallery.core.stats.uncertainty:intraclass_correlation",
    },
    "rm_gallery.core.stats.bradley_terry": {
        "Standing": "rm_gallery.core.stats.bradley_terry:RankedSystem",
        "Standings": "rm_gallery.core.stats.bradley_terry:Ranking",
    },
    "rm_gallery.core.sandbox.runner": {
        "get_runner": "rm_gallery.core.sandbox.select:get_runner",
        "shown_sandbox": "rm_gallery.core.sandbox.select:shown_sandbox",
        "doctor": "rm_gallery.core.sandbox.select:doctor",
    },
}
"""By module, the names it had and where each of them stands now; a name stays here for a year."""


def earlier(module: str, name: str) -> Any:
    """What a module's earlier name stands for; its `__getattr__`.

    Raises:
        AttributeError: the module never had such a name.
    """
    target = EARLIER.get(module, {}).get(name)
    if target is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    now, _, attribute = target.partition(":")
    return getattr(importlib.import_module(now), attribute)


OPENJUDGE = {
    name: where
    for where, names in {
        "rm_gallery.gallery.graders": """
        ActionAlignmentGrader ActionLoopDetectionGrader AnaphoraResolutionGrader
        CodeBugDetectionGrader CodeComplexityGrader CodeExecutionGrader CodeSecurityGrader
        CodeStyleGrader ContextMemoryGrader ImageCoherenceGrader ImageHelpfulnessGrader
        InstructionClarificationGrader JsonMatchGrader JsonValidatorGrader
        LengthPenaltyGrader MathExpressionVerifyGrader MemoryAccuracyGrader
        MemoryDetailPreservationGrader MemoryRetrievalEffectivenessGrader
        NgramRepetitionPenaltyGrader NumberAccuracyGrader ObservationInformationGainGrader
        PatchSimilarityGrader PlanDecompositionGrader PlanFeasibilityGrader
        ProactiveInteractionGrader ReasoningCoherenceGrader ReasoningFormatGrader
        ReasoningGroundednessGrader ReasoningToolCallFormatGrader ReflectionAccuracyGrader
        ReflectionOutcomeUnderstandingGrader ReflectionProgressAwarenessGrader
        ResponseCompletenessGrader ResponseHelpfulnessGrader ResponseRepetitionGrader
        SearchCorrectnessGrader SelfCorrectionGrader SimilarityGrader
        SkillCompletenessGrader SkillDeclarationAlignmentGrader SkillDesignGrader
        SkillRelevanceGrader SkillThreatAnalysisGrader StringMatchGrader SyntaxCheckGrader
        TextToImageGrader ToolCallAccuracyGrader ToolCallPrecisionRecallMatchGrader
        ToolCallStepSequenceMatchGrader ToolCallSuccessGrader ToolParameterCheckGrader
        ToolSelectionGrader ToolUsageEfficiencyGrader TopicSwitchGrader
        TrajectoryAccuracyGrader TrajectoryComprehensiveGrader
        TrajectoryErrorRecoveryGrader TrajectoryStepEfficiencyGrader
    """,
        "rm_gallery.core.graders.common": """
        CorrectnessGrader HallucinationGrader HarmfulnessGrader InstructionFollowingGrader
        RelevanceGrader
    """,
        "rm_gallery.core.graders.base": """
        BaseGrader FunctionGrader GraderError GraderMode GraderRank GraderResult
        GraderScore
    """,
        "rm_gallery.core.graders.llm": "LLMGrader",
        "rm_gallery.core.models": "OpenAIChatModel",
        "rm_gallery.core.model.message": "ChatMessage ChatResponse",
        "rm_gallery.core.runner.aggregator": "BaseAggregator WeightedSumAggregator",
        "rm_gallery.core.runner.grading_runner": "GraderConfig GradingRunner",
        "AgentJudgeGrader of rm_gallery.gallery.graders": """
        AgenticGrader BaseAgent BaseTool FunctionToolAdapter ReActAgent ToolResult
    """,
        "AutoPrincipleGenerator of rm_gallery.core.reward.principle.auto": """
        IterativeListwiseRubricsGeneratorConfig IterativePointwiseRubricsGeneratorConfig
        IterativeRubricsGenerator SimpleRubricsGenerator SimpleRubricsGeneratorConfig
        TaskBasedRubricGenerator
    """,
        "AverageGrader of rm_gallery.core.graders.strategy": "AverageEvaluationStrategy",
        "BaseLLM of rm_gallery.core.models": "BaseChatModel",
        "OpenAIChatModel with base_url=": "MiniMaxChatModel QiniuChatModel QwenVLModel",
        "TournamentGrader of rm_gallery.core.graders.strategy": "GRPOTournamentEvaluationStrategy",
        "VotingGrader of rm_gallery.core.graders.strategy": "VotingEvaluationStrategy",
        'tie_break= of VotingGrader: "min", "max" or "closest_to_mean"': "MIN MAX CLOSEST_TO_MEAN",
        "GraderConfig with mapper=": "parse_data_with_mapper",
        "max_concurrency= of GradingRunner": "SemaphoreResourceExecutor",
        "the command `rm-gallery winrate`": "PairwiseAnalyzer",
        "grade of rm_gallery.study.grading, whose report has `consistency`": "ConsistencyAnalyzer",
        "grade of rm_gallery.study.grading, whose report has `distributions`": "DistributionAnalyzer",
        "grade of rm_gallery.study.grading with labels=": """
        AccuracyAnalyzer CorrelationAnalyzer F1ScoreAnalyzer FalseNegativeAnalyzer
        FalsePositiveAnalyzer PrecisionAnalyzer RecallAnalyzer ValidationAnalyzer
    """,
        "the grader itself": "DirectEvaluationStrategy",
        'the words "en" and "zh"': "LanguageEnum",
        "a text or a list of messages": "PromptTemplate",
        'a dict with "url", "base64" or "path"': "MLLMImage",
    }.items()
    for name in names.split()
}
"""The classes of OpenJudge: the module that holds each or, in words, what to use instead."""

PATHS = """
    agentic agentic.adapters agentic.adapters.function agentic.agents agentic.tools analyzer
    analyzer.pairwise_analyzer analyzer.statistical
    analyzer.statistical.consistency_analyzer analyzer.statistical.distribution_analyzer
    analyzer.validation analyzer.validation.accuracy_analyzer
    analyzer.validation.correlation_analyzer analyzer.validation.f1_score_analyzer
    analyzer.validation.false_negative_analyzer analyzer.validation.false_positive_analyzer
    analyzer.validation.precision_analyzer analyzer.validation.recall_analyzer
    evaluation_strategy evaluation_strategy.average_evaluation_strategy
    evaluation_strategy.direct_evaluation_strategy
    evaluation_strategy.grpo_tournament_evaluation_strategy
    evaluation_strategy.voting_evaluation_strategy generator generator.iterative_rubric
    generator.iterative_rubric.generator generator.simple_rubric
    generator.simple_rubric.generator generator.simple_rubric.rubric_generator graders
    graders.agent graders.agent.action graders.agent.action.action_alignment
    graders.agent.action.action_loop graders.agent.memory
    graders.agent.memory.memory_accuracy graders.agent.memory.memory_detail_preservation
    graders.agent.memory.memory_retrieval_effectiveness graders.agent.observation
    graders.agent.observation.observation_information_gain graders.agent.plan
    graders.agent.plan.plan_decomposition graders.agent.plan.plan_feasibility
    graders.agent.reasoning graders.agent.reasoning.reasoning_coherence
    graders.agent.reasoning.reasoning_groundedness graders.agent.reflection
    graders.agent.reflection.reflection_accuracy
    graders.agent.reflection.reflection_outcome_understanding
    graders.agent.reflection.reflection_progress_awareness graders.agent.response
    graders.agent.response.response_completeness graders.agent.response.response_helpfulness
    graders.agent.tool graders.agent.tool.tool_call_accuracy
    graders.agent.tool.tool_call_precision_recall_match
    graders.agent.tool.tool_call_step_sequence_match graders.agent.tool.tool_call_success
    graders.agent.tool.tool_parameter_check graders.agent.tool.tool_selection
    graders.agent.tool.tool_usage_efficiency graders.agent.trajectory
    graders.agent.trajectory.trajectory_accuracy
    graders.agent.trajectory.trajectory_comprehensive
    graders.agent.trajectory.trajectory_error_recovery
    graders.agent.trajectory.trajectory_step_efficiency graders.agentic_grader
    graders.base_grader graders.bridge graders.code graders.code.code_bug_detection
    graders.code.code_complexity graders.code.code_execution graders.code.code_security
    graders.code.code_style graders.code.patch_similarity graders.code.syntax_checker
    graders.common.correctness graders.common.hallucination graders.common.harmfulness
     graders.common.instruction_following graders.common.relevance
    graders.common.search_correctness graders.format graders.format.json
    graders.format.json.json_match graders.format.json.json_validator
    graders.format.length_penalty graders.format.ngram_repetition_penalty
    graders.format.reasoning_format graders.format.reasoning_tool_format
    graders.function_grader graders.llm_grader graders.math
    graders.math.math_expression_verify graders.multi_turn
    graders.multi_turn.anaphora_resolution_grader graders.multi_turn.context_memory_grader
    graders.multi_turn.instruction_clarification_grader
    graders.multi_turn.proactive_interaction_grader
    graders.multi_turn.response_repetition_grader graders.multi_turn.self_correction_grader
    graders.multi_turn.topic_switch_grader graders.multimodal
    graders.multimodal.image_coherence graders.multimodal.image_helpfulness
    graders.multimodal.text_to_image graders.schema graders.skills
    graders.skills.completeness graders.skills.declaration_alignment graders.skills.design
    graders.skills.relevance graders.skills.threat_analysis graders.text
    graders.text.number_accuracy graders.text.similarity graders.text.string_match
    models.base_chat_model models.minimax_chat_model models.openai_chat_model
    models.qiniu_chat_model models.qwen_vl_model models.schema models.schema.oai
    models.schema.oai.message models.schema.oai.response models.schema.prompt_template
    models.schema.qwen models.schema.qwen.mllmImage runner runner.aggregator.base_aggregator
    runner.resource_executor runner.resource_executor.semaphore_resource_executor utils.mapping
""".split()
"""Where code of OpenJudge imports them, below `rm_gallery.core`, as its own core was called at first;
those that are modules of ours are not among them.
"""


class ImportPath(ModuleType):
    """A path at which OpenJudge's code imports its classes: each of them is found at all of these.

    It is a package without a file, beside the modules of ours in the folder of its name; one of our
    modules is one as well by its `__class__`.
    """

    def __getattr__(self, name: str) -> Any:
        where = OPENJUDGE.get(name)
        if where is None:
            if below := sys.modules.get(f"{self.__name__}.{name}"):
                return below
            return earlier(self.__name__, name)
        if " " in where:
            raise ImportError(f"{self.__name__} has no {name} here; use {where}.")
        return getattr(importlib.import_module(where), name)


def open_paths(package: str, folder: str) -> None:
    """Make the paths below a package importable, without importing what they lead to."""
    sys.modules[package].__class__ = ImportPath
    for path in PATHS:
        module = f"{package}.{path}"
        opened = sys.modules[module] = ImportPath(module)
        opened.__path__ = [os.path.join(folder, *path.split("."))]
        opened.__spec__ = ModuleSpec(module, None, is_package=True)
