import { type CatalogProfile, catalogOf } from "@heddle/contracts/catalog";
import type { SeedModel } from "./seed.ts";

/**
 * The catalog's models as a new cluster registers them. A deployment that answers for every model
 * runs on each worker; where each model has weights of its own, one replica of each is placed.
 */
export function profileModels(profile: CatalogProfile): readonly SeedModel[] {
  const { models, deployments } = catalogOf(profile);
  const createdAtMs = Date.now();
  const replicas = deployments.length === 1 ? "every-worker" : 1;
  return models.map((model) => {
    const spec = deployments.find(({ key }) => key === model.deployment);
    if (!spec) throw new Error(`the catalog has no deployment ${model.deployment}`);
    return { model: { ...model, createdAtMs }, deployment: { spec, replicas } };
  });
}
