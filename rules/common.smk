# The configuration, checked once, and what follows from it. Rules ask RULES, and hold no logic of their own.
from snakemake.exceptions import WorkflowError

from granularity.base.errors import GranularityError
from granularity.config.files import validate
from granularity.plan import driver
from granularity.plan.graph import plans
from granularity.plan.rules import Rules
from granularity.stages import STAGES

try:
    CONFIG = validate(
        config,
        (*workflow.configfiles, *workflow.overwrite_configfiles),
        dict(workflow.config_settings.config),
    )
    PLANS = plans(CONFIG)
    RULES = Rules(
        PLANS, driver.prepare(workflow, CONFIG, PLANS), driver.cores(workflow)
    )
except GranularityError as error:
    raise WorkflowError(*error.args) from None


onstart:
    driver.where_to_look((*workflow.configfiles, *workflow.overwrite_configfiles))


onerror:
    from granularity.look import status

    status.say_failed(PLANS)


container: driver.image(CONFIG.device)


ENV = f"../envs/{'gpu' if CONFIG.device == 'cuda' else 'cpu'}.yaml"


wildcard_constraints:
    condition="[^/]+",
    clustering="[^/]+",
    space="[^/]+",
    network="[^/]+",
    transfer="[^/]+",
    measure="[^/]+",
    unit="[^/]+",
    cell=RULES.cells,
    name="[^/]+(/[^/]+)?",
    study="[^/]+",
    world="[^/]+",
    part="[0-9]+",
