import { createHash } from "node:crypto";
import { statSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { toAppError } from "@heddle/base/errors";
import {
  type Catalog,
  type CatalogModel,
  type CatalogProfile,
  catalogOf,
  catalogOfFile,
  isCatalogDeployment,
} from "@heddle/contracts/catalog";
import type { ControlState, DeploymentRecord, ModelRecord } from "@heddle/control/state";
import type { Logger } from "@heddle/observability/logger";
import type { ControlPlane } from "../control-plane.ts";
import { propose, untilSettled } from "../propose.ts";
import { modelFileName, weightsKeyOf } from "./registration.ts";

/** What serves the shipped models after a start. */
export interface CatalogSeed {
  /** The profile, or the file's path. */
  readonly name: string;
  readonly catalog: Catalog;
  readonly replicas: DeploymentRecord["replicas"];
}

/** A profile's seed. A small model runs on every worker; five large ones would not fit. */
export function profileSeed(profile: CatalogProfile): CatalogSeed {
  const replicas = profile === "gpu" ? 1 : "every-worker";
  return { name: profile, catalog: catalogOf(profile), replicas };
}

/** The seed of one GGUF file for all ids: an absolute path, present on every worker's machine. */
export function fileSeed(path: string): CatalogSeed {
  const file = modelFileName(path);
  const source = pathToFileURL(path).href;
  // From its size the cluster knows that workers must divide it.
  const sizeBytes = statSync(path, { throwIfNoEntry: false })?.size;
  const weights = { key: weightsKeyOf(file), file, sources: [source], sizeBytes };
  const place = createHash("sha256").update(path).digest("hex").slice(0, 8);
  return { name: path, catalog: catalogOfFile(weights, place), replicas: "every-worker" };
}

/**
 * Registers the shipped models.
 * - Keys and other models stay.
 * - An id that an earlier seed registered moves to this one.
 * - An id that was registered manually stays; one that an administrator removed is not restored.
 */
export async function seedModels(
  control: ControlPlane,
  seed: CatalogSeed,
  logger: Logger,
): Promise<void> {
  const changed = unseededModels(control.state, seed);
  for (const shipped of changed) {
    await register(control, shipped, deploymentOf(seed, shipped));
  }
  if (changed.length > 0) {
    logger.info({ seed: seed.name, models: changed.length }, "registered the shipped models");
  }
}

function deploymentOf({ catalog, replicas }: CatalogSeed, model: CatalogModel): DeploymentRecord {
  const known = catalog.deployments.find(({ spec }) => spec.key === model.deployment);
  if (!known) throw new Error(`the catalog lacks the deployment ${model.deployment}`);
  const { spec, gpuMemoryGb } = known;
  if (gpuMemoryGb === undefined) return { spec, replicas };
  return { spec, replicas, resources: { gpuCount: 1, gpuTypes: [], gpuMemoryGb, orCpu: true } };
}

/** The models that `seedModels` would register. */
export function unseededModels(
  { models, removedModels }: ControlState,
  { catalog }: CatalogSeed,
): CatalogModel[] {
  return catalog.models.filter(({ id, deployment }) => {
    const present = models.get(id);
    if (!present) return !removedModels.has(id);
    return isCatalogDeployment(present.deployment) && present.deployment !== deployment;
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

/** Removes the id, unless another master just did. */
async function removed(control: ControlPlane, id: string): Promise<void> {
  try {
    const command = { type: "model.remove" as const, atMs: Date.now(), id, isReplaced: true };
    await untilSettled(control, () => propose(control, command));
  } catch (error) {
    const { code } = toAppError(error);
    if (code !== "not_found" && code !== "model_not_found") throw error;
  }
}
