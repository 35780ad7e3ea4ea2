import { homedir } from "node:os";
import { join } from "node:path";
import { catalogOf } from "@heddle/contracts/catalog";
import { pullWeights } from "@heddle/engines/weights/pull-weights";

/** The file of the demo weights, from the cache or pulled into it. */
export async function pullDemoWeights(): Promise<string> {
  const weights = catalogOf("demo").deployments[0]?.spec.weights;
  if (!weights) throw new Error("the catalog has no demo model");
  const data = process.env["HEDDLE_DATA"] ?? join(homedir(), ".heddle");
  const signal = AbortSignal.timeout(300_000);
  return pullWeights(weights, { cacheDirectory: join(data, "models"), signal });
}
