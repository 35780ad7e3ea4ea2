import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { PodSettings } from "../src/config/pod-settings.ts";
import type { Pod } from "../src/tasks/pods/kubernetes-types.ts";

const NAMESPACE = "models";
const POD_NAME = "worker-1";
const PODS = `/api/v1/namespaces/${NAMESPACE}/pods`;

/** Why no Pod can be run here; undefined where one can. */
export function whyNoPods(): string | undefined {
  const { status } = spawnSync("unshare", ["--fork", "--pid", "--mount-proc", "true"]);
  return status === 0 ? undefined : "unshare cannot make a process namespace: run as root";
}

/**
 * An API server with one node, over HTTP. The containers of its Pods are processes of this machine,
 * each in a process namespace of its own. They see the worker's paths as a Pod would mount them.
 */
export class KubernetesDouble {
  /** All that were made, also those that are gone. */
  readonly made: Pod[] = [];
  /** Answers to the next creations in place of a Pod. */
  readonly refusals: { readonly status: number; readonly message: string }[] = [];
  /** Images that cannot be pulled, by their names. */
  readonly missingImages = new Set<string>();
  /** The devices that its plugin has. */
  gpus = 4;
  readonly #folder: string;
  readonly #pods = new Map<string, Pod>();
  readonly #containers = new Map<string, ChildProcess>();
  /** Keyed by the reply: which Pods it is about. */
  readonly #watches = new Map<ServerResponse, (pod: Pod) => boolean>();
  #version = 1;
  #server: Server | undefined;

  /** `folder` has the worker's data directory. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  async listen(): Promise<void> {
    const account = join(this.#folder, "account");
    mkdirSync(account);
    writeFileSync(join(account, "token"), "secret");
    writeFileSync(join(account, "namespace"), NAMESPACE);
    const server = createServer((request, reply) => void this.#answer(request, reply));
    this.#server = server;
    await once(server.listen(0, "127.0.0.1"), "listening");
  }

  settings(more: Partial<PodSettings> = {}): PodSettings {
    const address = this.#server?.address() as AddressInfo | undefined;
    return {
      podName: POD_NAME,
      gpus: undefined,
      service: "heddle-tasks",
      clusterDomain: "cluster.local",
      templateFile: "",
      profilesFile: "",
      queuesFile: "",
      modelsFile: "",
      access: {
        url: `http://127.0.0.1:${address?.port}`,
        accountFolder: join(this.#folder, "account"),
      },
      ...more,
    };
  }

  get names(): string[] {
    return [...this.#pods.keys()];
  }

  /** As a node that is drained. */
  evict(name: string): void {
    const pid = this.#containers.get(name)?.pid;
    // The container's first process is the child of `unshare`.
    const [first] = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ");
    process.kill(Number(first), "SIGTERM");
  }

  /** Ends all watches, as an API server that is restarted. */
  dropWatches(): void {
    for (const watch of this.#watches.keys()) watch.destroy();
    this.#watches.clear();
  }

  close(): void {
    for (const container of this.#containers.values()) container.kill("SIGKILL");
    this.dropWatches();
    this.#server?.close();
    this.#server?.closeAllConnections();
  }

  async #answer(request: IncomingMessage, reply: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "", "http://api");
    const send = (status: number, body: object) => {
      reply.writeHead(status, { "content-type": "application/json" });
      reply.end(JSON.stringify(body));
    };
    if (request.headers.authorization !== "Bearer secret") return send(401, { message: "who?" });
    const name = url.pathname.slice(PODS.length + 1);
    if (url.pathname.startsWith("/api/v1/nodes/")) return send(200, this.#node());
    if (request.method === "DELETE") return send(...this.#delete(name));
    if (request.method === "POST") return send(...this.#create(await bodyOf(request)));
    if (name === POD_NAME) return send(200, this.#workersPod());
    const isSelected = selected(url.searchParams.get("labelSelector") ?? "");
    if (url.searchParams.has("watch")) {
      reply.writeHead(200).flushHeaders();
      this.#watches.set(reply, isSelected);
      reply.once("close", () => this.#watches.delete(reply));
      return;
    }
    const metadata = { resourceVersion: String(this.#version) };
    send(200, { items: [...this.#pods.values()].filter(isSelected), metadata });
  }

  #create(pod: Pod): [status: number, body: object] {
    const refusal = this.refusals.shift();
    if (refusal) return [refusal.status, refusal];
    const { name } = pod.metadata;
    if (this.#pods.has(name)) return [409, { message: `pods "${name}" already exists` }];
    this.made.push(pod);
    this.#pods.set(name, pod);
    setImmediate(() => this.#begin(pod));
    return [201, pod];
  }

  #begin(pod: Pod): void {
    const { image = "" } = pod.spec.containers[0] ?? {};
    if (!this.missingImages.has(image)) {
      this.#run(pod);
      return;
    }
    const waiting = { reason: "ImagePullBackOff", message: `no ${image}` };
    const containerStatuses = [{ state: { waiting } }];
    this.#update(pod.metadata.name, { phase: "Pending", containerStatuses });
  }

  #run({ metadata: { name }, spec }: Pod): void {
    const [container] = spec.containers;
    const program = [
      "--fork",
      "--pid",
      "--mount-proc",
      "--kill-child",
      ...(container?.command ?? []),
    ];
    const child = spawn("unshare", program, {
      stdio: "ignore",
      env: { PATH: process.env["PATH"], IMAGE: "yes", HOME: "/" },
    });
    this.#containers.set(name, child);
    this.#update(name, { phase: "Running" });
    child.once("exit", (code) =>
      this.#update(name, { phase: code === 0 ? "Succeeded" : "Failed" }),
    );
  }

  #update(name: string, status: Pod["status"]): void {
    const pod = this.#pods.get(name);
    if (!pod) return;
    const resourceVersion = String(++this.#version);
    const changed: Pod = { ...pod, metadata: { ...pod.metadata, resourceVersion }, status };
    this.#pods.set(name, changed);
    this.#tell("MODIFIED", changed);
  }

  #delete(name: string): [status: number, body: object] {
    const pod = this.#pods.get(name);
    if (!pod) return [404, { message: `pods "${name}" not found` }];
    this.#containers.get(name)?.kill("SIGKILL");
    this.#pods.delete(name);
    this.#tell("DELETED", { ...pod, metadata: { ...pod.metadata, resourceVersion: "1" } });
    return [200, pod];
  }

  #tell(type: string, object: Pod): void {
    for (const [watch, isSelected] of this.#watches) {
      if (isSelected(object)) watch.write(`${JSON.stringify({ type, object })}\n`);
    }
  }

  #node(): object {
    const allocatable = { cpu: "4", memory: "8Gi", "nvidia.com/gpu": String(this.gpus) };
    const labels = { "nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "81559" };
    return { metadata: { name: "node-1", labels }, status: { allocatable } };
  }

  #workersPod(): Pod {
    const owner = {
      apiVersion: "apps/v1",
      kind: "DaemonSet",
      name: "w",
      uid: "u",
      controller: true,
    };
    return {
      metadata: { name: POD_NAME, ownerReferences: [owner] },
      spec: {
        nodeName: "node-1",
        tolerations: [{ key: "gpu", operator: "Exists" }],
        imagePullSecrets: [{ name: "registry" }],
        containers: [
          {
            name: "worker",
            image: "team/worker:1",
            env: [{ name: "OWN", value: "yes" }],
            resources: { requests: { cpu: "500m", memory: "1Gi" } },
            volumeMounts: [{ name: "data", mountPath: this.#folder }],
          },
        ],
        volumes: [{ name: "data", hostPath: { path: "/var/lib/heddle" } }],
      },
    };
  }
}

/** By a selector of one label. */
function selected(selector: string): (pod: Pod) => boolean {
  const [label = "", value] = selector.split("=");
  return ({ metadata }) => selector === "" || metadata.labels?.[label] === value;
}

async function bodyOf(request: IncomingMessage): Promise<Pod> {
  const pieces: Buffer[] = [];
  for await (const piece of request as AsyncIterable<Buffer>) pieces.push(piece);
  return JSON.parse(Buffer.concat(pieces).toString()) as Pod;
}
