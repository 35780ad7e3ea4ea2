import type { ScalingTargets } from "@heddle/scheduler/serving/replica-count";
import { STANDARD_TERMS, versionOf } from "./cluster-version.ts";
import { ACCEPTED, type CatalogCommand, type ControlReply, refuse } from "./command.ts";
import type { ControlState, DeploymentRecord } from "./state.ts";

const MAX_REPLICAS = 10_000;
const MAX_REASON = 200;

type Scale = Extract<CatalogCommand, { readonly type: "deployment.scale" }>;
type Configure = Extract<CatalogCommand, { readonly type: "deployment.configure" }>;

/** Changes the number of replicas that follows the load, unless another change was faster. */
export function scaleDeployment(state: ControlState, command: Scale): ControlReply {
  const { deployment: key, from, replicas, atMs, reason } = command;
  const record = state.deployments.get(key);
  const { scaling } = record ?? {};
  if (!record || !scaling) return refuse("not_found", `no deployment ${key} follows its load`);
  if (record.replicas !== from) {
    const message = `the deployment ${key} has ${record.replicas} replicas, not ${from}`;
    return refuse("precondition_failed", message);
  }
  if (!(Number.isSafeInteger(replicas) && replicas >= scaling.min && replicas <= scaling.max)) {
    const message = `${key} has ${scaling.min} to ${scaling.max} replicas, got ${replicas}`;
    return refuse("invalid_value", message, "replicas");
  }
  const scaleReason = reason.slice(0, MAX_REASON);
  state.deployments.set(key, { ...record, replicas, scaledAtMs: atMs, scaleReason });
  return ACCEPTED;
}

/** Sets how many replicas a deployment has: a number, or bounds within which it follows the load. */
export function configureDeployment(state: ControlState, command: Configure): ControlReply {
  const { deployment: key, replicas, scaling, atMs } = command;
  const record = state.deployments.get(key);
  if (!record) return refuse("not_found", `no deployment has the key ${key}`);
  const { spec, resources } = record;
  const changed: DeploymentRecord = {
    spec,
    replicas,
    ...(resources && { resources }),
    ...(scaling && { scaling, scaledAtMs: atMs }),
  };
  const fault = scalingFault(state, changed);
  if (fault) return refuse("invalid_value", fault);
  state.deployments.set(key, changed);
  return ACCEPTED;
}

/** What is wrong with the number of replicas or its bounds. */
export function scalingFault(state: ControlState, record: DeploymentRecord): string | undefined {
  const { replicas, resources, scaling } = record;
  if (replicas !== "every-worker" && !(Number.isSafeInteger(replicas) && replicas >= 0)) {
    return `replicas must be a whole number or "every-worker", got ${replicas}`;
  }
  if (resources && replicas === "every-worker") {
    return "replicas that need GPUs are a number: the scheduler finds each its place";
  }
  if (!scaling) return undefined;
  if (versionOf(state) < STANDARD_TERMS) {
    return "some masters are too old to let replicas follow the load: upgrade all of them first";
  }
  if (replicas === "every-worker" || replicas < scaling.min || replicas > scaling.max) {
    return `the number of replicas is not within its bounds: ${replicas}`;
  }
  return boundsFault(scaling);
}

function boundsFault({ min, max, ...targets }: ScalingTargets): string | undefined {
  if (!(Number.isSafeInteger(min) && min >= 0)) return `min must be a whole number, got ${min}`;
  if (!(Number.isSafeInteger(max) && max >= Math.max(1, min) && max <= MAX_REPLICAS)) {
    return `max must be a whole number from ${Math.max(1, min)} to ${MAX_REPLICAS}, got ${max}`;
  }
  for (const [name, value] of Object.entries(targets)) {
    if (value !== undefined && !(Number.isFinite(value) && value >= 0)) {
      return `${name} must be a number from 0 on, got ${value}`;
    }
  }
  return undefined;
}
