import { readFileSync } from "node:fs";
import { Agent, type RequestOptions, request } from "node:https";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { now } from "../simulated-task.ts";
import { type PeerLoad, type PeerRun, peerRun } from "./short-jobs.ts";

const CONNECTIONS = 64;
const TIMEOUT_MS = 900_000;
const PODS = "/api/v1/namespaces/default/pods";
/** As fake nodes of a test cluster take pods: they end after a second, without a container. */
const FAKE = { "kuberig/exit-after": "1s" };
const TOLERATIONS = [{ operator: "Exists" }];

/** Pods on nodes without a machine; none, with a line, where no kubeconfig is named. */
export async function runKubernetes(
  kubeconfig: string | undefined,
  loads: readonly PeerLoad[],
): Promise<PeerRun[]> {
  if (kubeconfig === undefined) {
    console.log("\nno Kubernetes beside ours: name a cluster with fake nodes with --kubeconfig");
    return [];
  }
  const api = new KubeApi(readFileSync(kubeconfig, "utf8"));
  const runs: PeerRun[] = [];
  for (const load of loads) runs.push(await runPods(api, load));
  return runs;
}

async function runPods(api: KubeApi, { jobs, rate }: PeerLoad): Promise<PeerRun> {
  const [label, sentMs] = [`bench-${Date.now()}`, new Map<string, number>()];
  const startedMs = new Map<string, number>();
  const unwatch = await api.watch(`${PODS}?watch=1&labelSelector=run%3D${label}`, (event) => {
    const { metadata, status } = event.object;
    const hasStarted = status?.phase === "Running" || status?.phase === "Succeeded";
    if (hasStarted && !startedMs.has(metadata.name)) startedMs.set(metadata.name, now());
  });
  const beganMs = performance.now();
  let next = 0;
  const caller = async () => {
    for (let at = next++; at < jobs; at = next++) {
      const waitMs = rate > 0 ? beganMs + (at * 1_000) / rate - performance.now() : 0;
      if (waitMs > 0) await delay(waitMs);
      const name = `${label}-${at}`;
      sentMs.set(name, now());
      await api.post(PODS, podOf(name, label));
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, caller));
  const deadline = performance.now() + TIMEOUT_MS;
  while (startedMs.size < jobs && performance.now() < deadline) await delay(200);
  unwatch();
  await api.delete(`${PODS}?labelSelector=run%3D${label}`);
  return peerRun(
    { system: "Kubernetes", unit: "pod without a container", rate },
    sentMs,
    startedMs,
  );
}

function podOf(name: string, run: string) {
  return {
    metadata: { name, labels: { run }, annotations: FAKE },
    spec: {
      restartPolicy: "Never",
      nodeSelector: { "kuberig/fake": "true" },
      tolerations: TOLERATIONS,
      containers: [{ name: "main", image: "none", resources: { requests: { cpu: "10m" } } }],
    },
  };
}

interface PodEvent {
  readonly object: {
    readonly metadata: { readonly name: string };
    readonly status?: { readonly phase?: string };
  };
}

/** The API server that a kubeconfig with certificates names. */
class KubeApi {
  readonly #base: RequestOptions;

  constructor(kubeconfig: string) {
    const field = (name: string) => {
      const found = new RegExp(`${name}: *(\\S+)`).exec(kubeconfig)?.[1];
      if (found === undefined) throw new Error(`the kubeconfig has no ${name}`);
      return found;
    };
    const bytes = (name: string) => Buffer.from(field(name), "base64");
    const { hostname, port } = new URL(field("server"));
    const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS + 1 });
    const ca = bytes("certificate-authority-data");
    const [cert, key] = [bytes("client-certificate-data"), bytes("client-key-data")];
    this.#base = { hostname, port, agent, ca, cert, key };
  }

  post(path: string, body: object): Promise<void> {
    return this.#call("POST", path, JSON.stringify(body));
  }

  delete(path: string): Promise<void> {
    return this.#call("DELETE", path, "");
  }

  /** Calls `take` with each event until the result is called. */
  watch(path: string, take: (event: PodEvent) => void): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const call = request({ ...this.#base, path, method: "GET" }, (response) => {
        createInterface({ input: response }).on("line", (line) => take(JSON.parse(line)));
        resolve(() => call.destroy());
      });
      call.on("error", reject);
      call.end();
    });
  }

  #call(method: string, path: string, body: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const headers = { "content-type": "application/json" };
      const call = request({ ...this.#base, path, method, headers }, (response) => {
        const { statusCode = 0 } = response;
        text(response).then((said) => {
          if (statusCode < 300) resolve();
          else reject(new Error(`${method} ${path} answered ${statusCode}: ${said}`));
        }, reject);
      });
      call.on("error", reject);
      call.end(body);
    });
  }
}
