import { type CatalogProfile, catalogOf } from "@heddle/contracts/catalog";
import type { DeploymentRecord, ModelRecord } from "@heddle/control/state";
import type { Logger } from "@heddle/observability/logger";
import { propose } from "../control/propose.ts";
import type { ControlPlane } from "../ports.ts";

/**
 * Registers the shipped models on a cluster that has none. A cluster that has some is left as it
 * is: what an administrator removed must not come back with a restart.
 */
export async function seedModels(
  control: ControlPlane,
  profile: CatalogProfile,
  logger: Logger,
): Promise<void> {
  if (control.state.models.size > 0) return;
  const atMs = Date.now();
  const catalog = catalogOf(profile);
  const deployments = new Map(catalog.deployments.map((spec) => [spec.key, spec]));
  for (const shipped of catalog.models) {
    const spec = deployments.get(shipped.deployment);
    if (!spec) throw new Error(`the catalog lacks the deployment ${shipped.deployment}`);
    const model: ModelRecord = { ...shipped, createdAtMs: atMs };
    const deployment: DeploymentRecord = { spec, replicas: replicasOf(profile) };
    try {
      await propose(control, { type: "model.register", atMs, model, deployment });
    } catch (error) {
      // Another master may have been faster, with its own time of creation.
      if (!control.state.models.has(model.id)) throw error;
    }
  }
  logger.info({ profile, models: catalog.models.length }, "registered the profile's models");
}

/** A small model runs wherever there is a worker; five large ones would not fit on each. */
function replicasOf(profile: CatalogProfile): DeploymentRecord["replicas"] {
  return profile === "gpu" ? 1 : "every-worker";
}
