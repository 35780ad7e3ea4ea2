import { execFileSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

const ROOT = join(import.meta.dirname, "..", "..");

/** Where `npm run kube:tools` puts helm, helm3, kubectl and dclint. */
export const TOOLS_FOLDER = join(ROOT, "node_modules", ".cache", "heddle-kubernetes");

/** The chart's folder. */
export const CHART = join(ROOT, "helm", "heddle");

/** The path of a program: fetched, or on the PATH; undefined where there is none. */
export function kubeTool(name: string): string | undefined {
  const places = [TOOLS_FOLDER, join(TOOLS_FOLDER, "node_modules", ".bin")];
  return places.map((folder) => join(folder, name)).find(isProgram) ?? installedProgram(name);
}

/** The path of a program on the PATH; undefined where there is none. */
export function installedProgram(name: string): string | undefined {
  const folders = (process.env["PATH"] ?? "").split(delimiter);
  return folders.map((folder) => join(folder, name)).find(isProgram);
}

/** What a skipped test says. */
export const NO_HELM = "helm is not here: npm run kube:tools";

/** Runs helm; throws an error with all that it wrote where it fails. */
export function helm(...args: readonly string[]): string {
  return helmBy("helm", args);
}

/** Like `helm`, by the program of that name: helm3 is Helm 3. */
export function helmBy(name: "helm" | "helm3", args: readonly string[]): string {
  const program = kubeTool(name);
  if (program === undefined) throw new Error(NO_HELM);
  try {
    return execFileSync(program, args, { encoding: "utf8", stdio: "pipe", maxBuffer: 2 ** 26 });
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string };
    throw new Error(`helm ${args.join(" ")}: ${stdout}${stderr}`);
  }
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
