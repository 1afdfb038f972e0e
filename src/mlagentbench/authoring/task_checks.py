"""The list of all checks of a task, in the order in which they run."""

from mlagentbench.authoring import data_checks, file_checks, solution_checks, submission_checks
from mlagentbench.authoring.contract import TaskCheck

DATA = ("files", "data")
TASK_CHECKS = (
    TaskCheck("files", "the folder is complete and task.toml is valid", file_checks.check_files, needs=()),
    TaskCheck("modules", "no module of the task shadows a package", file_checks.check_modules),
    TaskCheck("validation-line", "the starter prints a validation score", file_checks.check_validation_line),
    TaskCheck("rules", "the audit can test the rules", file_checks.check_rules),
    TaskCheck("levels", "the levels are measured and in order", file_checks.check_levels),
    TaskCheck("ceiling", "no level is better than the ceiling", file_checks.check_ceiling),
    TaskCheck("reachable", "a success is possible", file_checks.check_success_possible),
    TaskCheck("data", "the data can be prepared", data_checks.check_data),
    TaskCheck("private", "no private file is public", data_checks.check_private_files, DATA),
    TaskCheck("columns", "no public table holds the answers", data_checks.check_public_columns, DATA),
    TaskCheck("answers", "the answers are the best submission", submission_checks.check_answers, DATA),
    TaskCheck("constants", "no constant succeeds", submission_checks.check_constants, (*DATA, "answers")),
    TaskCheck(
        "malformed",
        "malformed submissions are invalid",
        submission_checks.check_malformed,
        (*DATA, "answers"),
    ),
    TaskCheck("empty", "an empty workspace is invalid", submission_checks.check_empty_workspace, DATA),
    TaskCheck(
        "packages", "no package of the runtime has the data", solution_checks.check_packages, DATA, slow=True
    ),
    TaskCheck("nothing", "doing nothing does not succeed", solution_checks.check_nothing, DATA, slow=True),
    TaskCheck(
        "starter", "the starter is valid and scores its level", solution_checks.check_starter, DATA, slow=True
    ),
    TaskCheck("reference", "the reference succeeds", solution_checks.check_reference, DATA, slow=True),
    TaskCheck("audit", "no attack of the quick audit succeeds", solution_checks.check_audit, DATA, slow=True),
)
