import { execFileSync } from "node:child_process";
import { stringify } from "yaml";
import { kubectl, whyNoCluster } from "./kube-cluster.ts";
import { CHART, kubeTool, NO_HELM } from "./kube-tools.ts";

/** Small enough for one machine, with weights that need no network. */
export const SMALL_PARTS = {
  master: {
    profile: "tiny",
    resources: { requests: { cpu: "10m", memory: "64Mi" }, limits: { memory: "2Gi" } },
    extraEnv: [{ name: "HEDDLE_WAL_SEGMENT_MIB", value: "4" }],
    persistence: { size: "1Gi" },
  },
  worker: {
    resources: { requests: { cpu: "10m", memory: "64Mi" } },
    persistence: { size: "1Gi" },
  },
};

/** Why no release can be installed here; undefined where one can. */
export function whyNoRelease(): string | undefined {
  const missing = whyNoCluster() ?? (kubeTool("helm") ? undefined : NO_HELM);
  if (missing !== undefined || process.env["HEDDLE_KUBE_IMAGES"]) return missing;
  return "HEDDLE_KUBE_IMAGES names no folder with images of deploy/images/build.sh --out";
}

/** The chart's release `heddle` in a namespace. */
export class ChartRelease {
  readonly namespace: string;

  constructor(namespace: string) {
    this.namespace = namespace;
  }

  /** Runs helm with the values; throws an error with all that it wrote where it fails. */
  helm(args: readonly string[], values: object): string {
    const env = { ...process.env, KUBECONFIG: process.env["HEDDLE_KUBECONFIG"] };
    const options = { encoding: "utf8", stdio: "pipe", env, input: stringify(values) } as const;
    const all = ["--namespace", this.namespace, ...args];
    try {
      return execFileSync(kubeTool("helm") ?? "helm", all, options);
    } catch (error) {
      const { stdout, stderr } = error as { stdout: string; stderr: string };
      throw new Error(`helm ${args.join(" ")}: ${stdout}${stderr}`);
    }
  }

  install(values: object, chart = CHART): void {
    const wait = ["--wait", "--timeout", "300s"];
    this.helm(["install", "heddle", chart, "--values", "-", ...wait], values);
  }

  upgrade(values: object, ...flags: readonly string[]): void {
    const wait = ["--wait", "--timeout", "400s", ...flags];
    this.helm(["upgrade", "heddle", CHART, "--values", "-", ...wait], values);
  }

  rollback(revision: number): void {
    this.helm(["rollback", "heddle", String(revision), "--wait", "--timeout", "400s"], {});
  }

  kubectl(...args: readonly string[]): string {
    return kubectl(["--namespace", this.namespace, ...args]);
  }

  /** What the command line writes in the pod of a master that runs; `input` is what it reads. */
  heddle(command: string, input = ""): string {
    const [pod = ""] = this.kubectl(
      "get",
      "pods",
      "--selector=app.kubernetes.io/component=master",
      "--field-selector=status.phase=Running",
      "--output=jsonpath={.items[*].metadata.name}",
    ).split(" ");
    return this.#heddleIn(pod, `http://heddle.${this.namespace}.svc:80`, command, input);
  }

  /** Likewise, where that pod's own master answers. */
  heddleOf(pod: string, command: string): string {
    return this.#heddleIn(pod, "http://127.0.0.1:8080", command);
  }

  #heddleIn(pod: string, endpoint: string, command: string, input = ""): string {
    const key = "export HEDDLE_API_KEY=$(cat /run/heddle/secrets/bootstrap-key)";
    const given = `echo ${Buffer.from(input).toString("base64")} | base64 -d`;
    const program = `${key}; export HEDDLE_ENDPOINT=${endpoint}; ${given} | heddle ${command}`;
    return this.kubectl("exec", pod, "--container=master", "--", "sh", "-c", program);
  }
}
