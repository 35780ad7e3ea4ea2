import { AppError } from "@heddle/base/errors";
import { type SubmitJob, submitJobRequest } from "@heddle/contracts/api/job-spec";
import { isTrainerVariable, TRAINER_VARIABLES } from "@heddle/contracts/trainer-environment";
import { trainingFaults } from "@heddle/contracts/training-faults";
import { check, RequestFaults, type ValidationFault } from "@heddle/contracts/validation";
import { offerFaults } from "@heddle/control/jobs/records/offer-faults";
import { type SpecFault, specFaults } from "@heddle/control/jobs/records/spec-faults";
import { executorOf } from "@heddle/control/jobs/records/task-request";
import { shardFaults } from "@heddle/control/jobs/scheduling/shard-places";
import type { ControlState } from "@heddle/control/state";
import type { PluginConfigs } from "./plugin-configs.ts";

/** Maximum refused variables that are listed. */
const MAX_VARIABLE_FAULTS = 16;

/**
 * The spec in a body of POST /jobs. Throws with all faults: malformed fields, and inconsistencies
 * between the others.
 */
export function readSpec(body: Record<string, unknown>, state: Known): SubmitJob {
  const { data, faults } = check(submitJobRequest, body);
  if (data) {
    const misfits = misfitsOf(data, state).map(faultOf);
    if (misfits.length > 0) throw refusal("unprocessable", misfits);
    return data;
  }
  const malformed = new Set(faults.map(fieldOf));
  const { data: rest } = check(submitJobRequest, without(body, malformed));
  const misfits = rest ? misfitsOf(rest, state).filter((each) => isOfOthers(each, malformed)) : [];
  throw refusal(faults[0]!.code, [...faults, ...misfits.map(faultOf)]);
}

/** The context of the validation: workers, parameter servers, and the schemas of plugins. */
interface Known extends Pick<ControlState, "nodes" | "servers"> {
  readonly pluginConfigs: PluginConfigs;
}

/** The faults of a spec whose fields are each valid. */
function misfitsOf(spec: SubmitJob, { nodes, servers, pluginConfigs }: Known): SpecFault[] {
  const words = ({ param, detail, reads }: SpecFault): SpecFault => {
    return { param, detail: `Invalid value for '${param}': ${detail}.`, reads };
  };
  const config = configFaults(spec, pluginConfigs);
  // A malformed number is reported once.
  const shards = config.length === 0 ? shardFaults(spec, servers) : [];
  const own = [
    ...specFaults(spec),
    ...variableFaults(spec),
    ...offerFaults(spec, nodes),
    ...shards,
  ];
  const found = own.map(words);
  return [...found, ...config];
}

/** Variables that would or may run code in Heddle's own trainer. */
function variableFaults(spec: SubmitJob): SpecFault[] {
  if (spec.algorithm === undefined || executorOf(spec) !== "training") return [];
  const named = (["environment_variables", "secret_variables"] as const).flatMap((field) =>
    Object.keys(spec[field] ?? {}).map((name) => ({ field, name })),
  );
  const refused = named.filter(({ name }) => !isTrainerVariable(name));
  return refused.slice(0, MAX_VARIABLE_FAULTS).map(({ field, name }) => ({
    param: `${field}.${name}`,
    detail: `a job without a \`command\` runs in Heddle's own trainer, which takes no such variable: it takes ${TRAINER_VARIABLES}. Give a setting of a plugin a name that begins with PLUGIN_`,
    reads: ["algorithm", "command", "container_image", field],
  }));
}

/** The faults in the hyperparameters of a job for our own trainer. */
function configFaults(spec: SubmitJob, pluginConfigs: PluginConfigs): SpecFault[] {
  const { algorithm, config } = spec;
  if (algorithm === undefined || executorOf(spec) !== "training") return [];
  const reads = ["algorithm", "command", "container_image", "config", "tasks"];
  const shared = trainingFaults(algorithm, config, spec.tasks, spec.resources.gpu_count);
  if (shared.length > 0) {
    const alsoGpus = [...reads, "resources.gpu_count"];
    return shared.map((fault) => ({
      ...fault,
      reads: fault.param === "config.device" ? alsoGpus : reads,
    }));
  }
  const own = pluginConfigs.faults(spec);
  return own.map(({ param, message }) => ({ param, detail: message, reads }));
}

function faultOf({ param, detail: message }: SpecFault): ValidationFault {
  return { param, code: "invalid_value", message };
}

function refusal(
  code: "unprocessable" | ValidationFault["code"],
  faults: readonly ValidationFault[],
): AppError {
  const { message, param } = faults[0]!;
  return new AppError(code, message, {
    param: param || undefined,
    cause: new RequestFaults(faults),
  });
}

/** The field of a fault; those of `resources` are separate. */
function fieldOf({ path = [], param }: ValidationFault): string {
  const [first = param, second] = path;
  return first === "resources" && second !== undefined
    ? `resources.${String(second)}`
    : String(first);
}

/**
 * Whether the fault depends on valid fields only: a default in a malformed field's place proves
 * nothing.
 */
function isOfOthers({ reads }: SpecFault, malformed: ReadonlySet<string>): boolean {
  return reads.every((field) => !malformed.has(field) && !malformed.has(field.split(".")[0]!));
}

/** The body without these fields, and with a name. */
function without(
  body: Record<string, unknown>,
  fields: ReadonlySet<string>,
): Record<string, unknown> {
  const kept = (value: Record<string, unknown>, prefix: string) =>
    Object.fromEntries(Object.entries(value).filter(([name]) => !fields.has(prefix + name)));
  const { resources, ...others } = kept(body, "");
  const name = fields.has("name") ? { name: "unnamed" } : {};
  if (typeof resources !== "object" || resources === null) return { ...others, ...name };
  return {
    ...others,
    ...name,
    resources: kept(resources as Record<string, unknown>, "resources."),
  };
}
