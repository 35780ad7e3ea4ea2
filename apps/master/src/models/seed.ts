import type { DeploymentRecord, ModelRecord } from "@heddle/control/state";
import type { Logger } from "@heddle/observability/logger";
import { propose } from "../control/propose.ts";
import type { ControlPlane } from "../ports.ts";

/** A model that a profile registers, with the deployment that answers for it. */
export interface SeedModel {
  readonly model: ModelRecord;
  readonly deployment: DeploymentRecord;
}

/**
 * Registers a profile's models on a cluster that has none. A cluster that has some is left as it
 * is: what an administrator removed must not come back with a restart.
 */
export async function seedModels(
  control: ControlPlane,
  models: readonly SeedModel[],
  logger: Logger,
): Promise<void> {
  if (control.state.models.size > 0) return;
  for (const { model, deployment } of models) {
    await propose(control, { type: "model.register", atMs: Date.now(), model, deployment });
  }
  logger.info({ models: models.map(({ model }) => model.id) }, "registered the profile's models");
}
