import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { kubeTool } from "./kube-tools.ts";

/** How long something may take that the tests wait for. */
const TIMEOUT_MS = 120_000;

/** Why the tests on a real Kubernetes are skipped; undefined if they run. */
export function whyNoCluster(): string | undefined {
  if (!process.env["HEDDLE_KUBECONFIG"]) {
    return "HEDDLE_KUBECONFIG names no Kubernetes cluster; npm run test:kube starts one";
  }
  return kubeTool("kubectl") ? undefined : "kubectl is not here: npm run kube:tools";
}

/** Runs kubectl with the tests' cluster; throws an error with all that it wrote where it fails. */
export function kubectl(args: readonly string[], input?: string): string {
  const env = { ...process.env, KUBECONFIG: process.env["HEDDLE_KUBECONFIG"] };
  const options = { encoding: "utf8", stdio: "pipe", env, maxBuffer: 2 ** 26 } as const;
  try {
    return execFileSync(kubeTool("kubectl") ?? "kubectl", args, { ...options, input: input ?? "" });
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string };
    throw new Error(`kubectl ${args.join(" ")}: ${stdout}${stderr}`);
  }
}

/** Applies definitions, and resolves once they are served: `kubectl wait` fails where one has no conditions yet. */
export async function define(path: string, ...flags: readonly string[]): Promise<void> {
  kubectl(["apply", ...flags, "--filename", path]);
  await untilFound("the definitions are served", () =>
    kubectl(["wait", "--for=condition=Established", "--filename", path, "--timeout=60s"]),
  );
}

/** Kills one program of the cluster that HEDDLE_KUBE_RIG runs; it starts again by itself. */
export function crash(name: "kube-apiserver" | "etcd" | "kubelet"): void {
  rig("restart", name);
}

/** How long an outage of the API server takes. */
export const OUTAGE_SECONDS = Number(process.env["HEDDLE_KUBE_OUTAGE_SECONDS"] ?? 45);

/** Holds the rig's API server for the outage's time: it takes connections, and answers none. */
export async function outage(): Promise<void> {
  const state = join(dirname(process.env["HEDDLE_KUBECONFIG"] ?? ""), "state");
  const pid = readFileSync(join(state, "kube-apiserver.pid"), "utf8").trim();
  rig("inside", "kill", "-STOP", pid);
  try {
    await new Promise((resolve) => setTimeout(resolve, OUTAGE_SECONDS * 1_000));
  } finally {
    rig("inside", "kill", "-CONT", pid);
  }
}

/** Adds a node without a machine, whose Pods need a toleration, to the cluster that HEDDLE_KUBE_RIG runs. */
export function addNode({
  prefix,
  gpus,
}: {
  readonly prefix: string;
  readonly gpus: number;
}): void {
  rig("fake", "--count", "1", "--gpus", String(gpus), "--prefix", prefix);
}

function rig(...args: readonly string[]): void {
  execFileSync(join(process.env["HEDDLE_KUBE_RIG"] ?? "", "rig.sh"), args, { stdio: "ignore" });
}

/** Polls until there is something; rejects with the last error, or with what was waited for. */
export async function untilFound<T>(
  what: string,
  poll: () => T | undefined | Promise<T | undefined>,
  timeoutMs = TIMEOUT_MS,
): Promise<T> {
  const untilMs = performance.now() + timeoutMs;
  for (;;) {
    let fault: unknown;
    try {
      const found = await poll();
      if (found !== undefined) return found;
    } catch (error) {
      fault = error;
    }
    if (performance.now() > untilMs)
      throw fault ?? new Error(`not within ${timeoutMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}
