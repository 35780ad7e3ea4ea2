import { toAppError } from "@heddle/base/errors";
import {
  CATALOG_PROFILES,
  type CatalogModel,
  type CatalogProfile,
  catalogOf,
} from "@heddle/contracts/catalog";
import type { ControlState, DeploymentRecord, ModelRecord } from "@heddle/control/state";
import type { Logger } from "@heddle/observability/logger";
import { propose, untilSettled } from "../control/propose.ts";
import type { ControlPlane } from "../ports.ts";

/**
 * Registers the shipped models under a profile. Keys and other models stay whatever the profile:
 * an id that another profile's weights answer for goes over to this profile's. An id that an
 * administrator removed does not come back, as long as any model is left.
 */
export async function seedModels(
  control: ControlPlane,
  profile: CatalogProfile,
  logger: Logger,
): Promise<void> {
  const { deployments } = catalogOf(profile);
  const changed = unseededModels(control.state, profile);
  for (const shipped of changed) {
    const spec = deployments.find(({ key }) => key === shipped.deployment);
    if (!spec) throw new Error(`the catalog lacks the deployment ${shipped.deployment}`);
    await register(control, shipped, { spec, replicas: replicasOf(profile) });
  }
  if (changed.length > 0) {
    logger.info({ profile, models: changed.length }, "registered the profile's models");
  }
}

/** The profile's models that `seedModels` would register. */
export function unseededModels({ models }: ControlState, profile: CatalogProfile): CatalogModel[] {
  const wanted = catalogOf(profile).models;
  const isNew = models.size === 0;
  return wanted.filter(({ id, deployment }) => {
    const present = models.get(id);
    return present ? isShipped(present) && present.deployment !== deployment : isNew;
  });
}

async function register(
  control: ControlPlane,
  shipped: CatalogModel,
  deployment: DeploymentRecord,
): Promise<void> {
  const { id } = shipped;
  const atMs = Date.now();
  const isDone = () => control.state.models.get(id)?.deployment === shipped.deployment;
  if (isDone()) return;
  if (control.state.models.has(id)) await removed(control, id);
  try {
    const model: ModelRecord = { ...shipped, createdAtMs: atMs };
    const command = { type: "model.register" as const, atMs, model, deployment };
    await untilSettled(control, () => propose(control, command));
  } catch (error) {
    // Another master may have been faster, with its own time of creation.
    if (!isDone()) throw error;
  }
}

/** Removes the id, or finds that another master just did. */
async function removed(control: ControlPlane, id: string): Promise<void> {
  try {
    const command = { type: "model.remove" as const, atMs: Date.now(), id };
    await untilSettled(control, () => propose(control, command));
  } catch (error) {
    const { code } = toAppError(error);
    if (code !== "not_found" && code !== "model_not_found") throw error;
  }
}

const SHIPPED_DEPLOYMENTS = new Set(
  CATALOG_PROFILES.flatMap((profile) => catalogOf(profile).deployments.map(({ key }) => key)),
);

/** Whether the id is answered by weights of the catalog, and not by somebody's own. */
function isShipped(model: ModelRecord | undefined): boolean {
  return model !== undefined && SHIPPED_DEPLOYMENTS.has(model.deployment);
}

/** A small model runs wherever there is a worker; five large ones would not fit on each. */
function replicasOf(profile: CatalogProfile): DeploymentRecord["replicas"] {
  return profile === "gpu" ? 1 : "every-worker";
}
