import { homedir } from "node:os";
import { join } from "node:path";
import { catalogOf } from "@heddle/contracts/catalog";
import { pullWeights } from "../../weights/pull-weights.ts";

/**
 * For tests: the path of the demo model's weights, from HEDDLE_DEMO_WEIGHTS, the cache, or a source
 * that can be reached. Without them it resolves with undefined, and prints why.
 */
export async function demoWeights(): Promise<string | undefined> {
  const given = process.env["HEDDLE_DEMO_WEIGHTS"];
  const spec = catalogOf("demo").deployments[0]?.spec.weights;
  if (given || !spec) return given;
  const data = process.env["HEDDLE_DATA"] ?? join(homedir(), ".heddle");
  const signal = AbortSignal.timeout(60_000);
  try {
    return await pullWeights(spec, { cacheDirectory: join(data, "models"), signal });
  } catch (error) {
    console.log(`skipped: the tests on SmolLM2 need its weights: ${(error as Error).message}`);
    return undefined;
  }
}
