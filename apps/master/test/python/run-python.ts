import { execFile, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { type ProcessCluster, TINY } from "../process-cluster.ts";

export const PYTHON = process.env["HEDDLE_PYTHON"] ?? "python3";

/** Whether the Python has the packages; where not, one line says how to test with them. */
export function hasPackages(imported: string, wanted = imported): boolean {
  const { status } = spawnSync(PYTHON, ["-c", `import ${imported}`], { stdio: "ignore" });
  if (status === 0) return true;
  process.stdout.write(
    `skipped: ${PYTHON} has no package openai. Set HEDDLE_PYTHON to a Python that has ${wanted} to test with it.\n`,
  );
  return false;
}

/** The JSON that a script of this folder prints about the cluster's API. */
export async function runPython(
  cluster: ProcessCluster,
  script: string,
  timeout: number,
): Promise<Record<string, unknown>> {
  const path = fileURLToPath(new URL(script, import.meta.url));
  const env = {
    ...process.env,
    OPENAI_BASE_URL: `${cluster.url}/api/v1`,
    OPENAI_API_KEY: cluster.adminKey,
  };
  const { stdout } = await promisify(execFile)(PYTHON, [path, TINY], { env, timeout });
  return JSON.parse(stdout) as Record<string, unknown>;
}
