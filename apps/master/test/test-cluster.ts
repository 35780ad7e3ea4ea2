import { type ChildProcess, spawn } from "node:child_process";
import { createSecretKey } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { AppError } from "@heddle/base/errors";
import { eventually } from "@heddle/base/testing/eventually";
import { SCRIPTED_WORKER, startArguments } from "@heddle/base/testing/programs";
import type {
  DeploymentSpec,
  EngineEvent,
  EngineOptions,
  GenerateRequest,
} from "@heddle/contracts/engine";
import type { ControlCommand, ControlReply } from "@heddle/control/command";
import type { NodeRecord } from "@heddle/control/jobs/records/records";
import { nodeOffer } from "@heddle/control/jobs/testing/specs";
import type { DeploymentRecord } from "@heddle/control/state";
import { newestControl } from "@heddle/control/testing/newest-control";
import { createLogger } from "@heddle/observability/logger";
import { serveControllers } from "@heddle/rpc/nest/serve-controllers";
import { type BoundServer, bindServer, closeServer } from "@heddle/rpc/server";
// Compiled, because Node runs benchmarks with this cluster as they are, and strips no decorators.
import { configModule } from "../dist/config/config.module.js";
import { controlPlaneModule } from "../dist/control-plane/control-plane.module.js";
import { DispatchModule } from "../dist/inference/dispatch/dispatch.module.js";
import { INFERENCE_DISPATCH } from "../dist/inference/dispatch/inference-port.js";
import { NODE_DIRECTORY } from "../dist/nodes/node-directory.js";
import { NodesModule } from "../dist/nodes/nodes.module.js";
import type { ControlPlane } from "../src/control-plane/control-plane.ts";
import type {
  DispatchStats,
  InferenceAnswer,
  InferenceDispatch,
} from "../src/inference/dispatch/inference-port.ts";
import type { NodeDirectory } from "../src/nodes/node-directory.ts";
import type { InferenceCall } from "../src/nodes/replicas/ready-replica.ts";
import { type TestSettings, testConfig } from "./test-config.ts";

export const clusterToken = "a-token-for-tests-only";

const REAL_WORKER = startArguments("worker");
const PARAMETER_SERVER = startArguments("parameter-server");

/** The replicated state of one master, changed by the test directly. */
export class TestControl implements ControlPlane {
  readonly #replicated = newestControl();
  readonly state = this.#replicated.state;
  readonly jobs = this.#replicated.jobs;
  readonly documents = this.#replicated.documents;
  readonly appliedIndex = 0;
  fault: AppError | undefined;
  group: ControlPlane["group"];
  readonly #listeners = new Set<(command: ControlCommand) => void>();

  propose(): Promise<ControlReply> {
    return Promise.reject(new Error("the tests change the state themselves"));
  }

  keptAnswer(): undefined {
    return undefined;
  }

  onApplied(listener: (command: ControlCommand) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  deploy(
    key: string,
    replicas: DeploymentRecord["replicas"] = "every-worker",
    options: EngineOptions = {},
    weightsKey = key,
    sources: readonly string[] = ["builtin://"],
  ): void {
    const weights = { key: weightsKey, file: "model.gguf", sources };
    const spec: DeploymentSpec = { key, engine: "llama", weights, options };
    this.state.deployments.set(key, { spec, replicas });
    this.#applied();
  }

  /** As the state has a node without tasks. */
  drain(nodeId: string, state: "draining" | "drained", drainByMs: number): void {
    const record = { offer: nodeOffer(nodeId), state, drainByMs };
    this.state.nodes.set(nodeId, record as unknown as NodeRecord);
    this.#applied();
  }

  remove(key: string): void {
    this.state.deployments.delete(key);
    this.#applied();
  }

  #applied(): void {
    const command: ControlCommand = { type: "model.remove", atMs: 0, id: "" };
    for (const listener of this.#listeners) listener(command);
  }
}

/** The modules of a master to which nodes attach. */
interface ClusterLink {
  readonly dispatch: InferenceDispatch;
  readonly directory: NodeDirectory;
  /** host:port for the nodes' --masters. */
  readonly grpcAddress: string;
  stats(): DispatchStats & { readonly workerLost: number };
  close(): Promise<void>;
}

class LinkModule {}

/** A master's cluster link with worker processes, all on loopback; `close` ends everything. */
export class TestCluster {
  readonly control = new TestControl();
  readonly folder = mkdtempSync(join(tmpdir(), "heddle-wire-"));
  readonly #processes = new Set<ChildProcess>();
  #link: ClusterLink | undefined;
  #server: BoundServer["server"] | undefined;
  #nextWorker = 1;

  get link(): ClusterLink {
    if (!this.#link) throw new Error("the master is not started");
    return this.#link;
  }

  async startMaster(settings: TestSettings = {}): Promise<void> {
    const nodeHeartbeatMs = 400;
    const config = testConfig(this.folder, {
      masterId: "master-1",
      grpcPort: 0,
      ...settings,
      fixedTimes: { nodeHeartbeatMs, ...settings.fixedTimes },
    });
    const { masterId: name, grpcPort: port } = config;
    const credentials = { clusterToken, node: { role: "master", name } as const };
    const { server, address } = await bindServer({ host: "127.0.0.1", port, credentials });
    this.#server = server;
    const pepper = createSecretKey(Buffer.alloc(32));
    const open = { control: this.control, pepper, credentials, authorityHash: undefined };
    const imports = [
      configModule(config, createLogger({ service: "master-test", level: "silent" })),
      controlPlaneModule(open),
      NodesModule,
      DispatchModule,
    ];
    const app = await serveControllers({ module: LinkModule, imports }, server);
    const dispatch = app.get<InferenceDispatch>(INFERENCE_DISPATCH, { strict: false });
    const directory = app.get<NodeDirectory>(NODE_DIRECTORY, { strict: false });
    this.#link = {
      dispatch,
      directory,
      grpcAddress: address,
      stats: () => ({ ...dispatch.stats(), workerLost: directory.workersLost }),
      close: () => app.close(),
    };
  }

  async stopMaster(): Promise<void> {
    await this.#link?.close();
    this.#link = undefined;
    if (this.#server) await closeServer(this.#server, 1_000);
    this.#server = undefined;
  }

  /** Resolves when the process is ready. */
  async startWorker(
    settings: {
      readonly name?: string;
      readonly clusterToken?: string;
      readonly masters?: readonly string[];
    } = {},
  ): Promise<ChildProcess> {
    const name = settings.name ?? `worker-${this.#nextWorker++}`;
    const argument = JSON.stringify({
      dataDirectory: join(this.folder, name),
      masters: [this.link.grpcAddress],
      clusterToken,
      ...settings,
      name,
    });
    return this.#spawn([...SCRIPTED_WORKER, argument]);
  }

  startParameterServer(name: string): Promise<ChildProcess> {
    return this.#spawn([...PARAMETER_SERVER, ...this.#flags(name)]);
  }

  /** A worker with real engines. */
  startRealWorker(name: string): Promise<ChildProcess> {
    const cache = ["--models-cache", join(this.folder, "models")];
    return this.#spawn([...REAL_WORKER, ...this.#flags(name), ...cache]);
  }

  #flags(name: string): string[] {
    const tokenFile = join(this.folder, "token");
    writeFileSync(tokenFile, clusterToken);
    const flags = ["--data", join(this.folder, name), "--name", name];
    return [...flags, "--masters", this.link.grpcAddress, "--cluster-token-file", tokenFile];
  }

  /** Resolves when the process is ready. */
  async #spawn(args: readonly string[]): Promise<ChildProcess> {
    const child = spawn(process.execPath, [...args], { stdio: ["ignore", "pipe", "inherit"] });
    this.#processes.add(child);
    child.once("exit", () => this.#processes.delete(child));
    for await (const line of createInterface({ input: child.stdout })) {
      if (line.includes('"ready"')) break;
    }
    child.stdout.resume();
    return child;
  }

  async workersReady(deployment: string, count: number): Promise<void> {
    await eventually(() => {
      const replicas = this.link.directory.nodes().flatMap((node) => node.replicas);
      const ready = replicas.filter((r) => r.deployment === deployment && r.phase === "ready");
      return ready.length === count;
    }, `${count} replicas of ${deployment} are ready`);
  }

  node(name: string): string {
    const found = this.link.directory.nodes().find((node) => node.name === name);
    if (!found) throw new Error(`no node ${name} is attached`);
    return found.id;
  }

  start(
    deployment: string,
    text: string,
    options: Partial<Omit<InferenceCall, "request">> & { signal?: AbortSignal } & {
      request?: Partial<GenerateRequest>;
    } = {},
  ): Promise<InferenceAnswer> {
    const { signal = new AbortController().signal, request, ...rest } = options;
    const call: InferenceCall = {
      requestId: "r",
      deployment,
      request: { ...textRequest(text), ...request },
      fairKey: "key",
      cacheSalt: "",
      deadlineMs: 60_000,
      priority: 0,
      ...rest,
    };
    return this.link.dispatch.start(call, signal);
  }

  async close(): Promise<void> {
    await this.stopMaster();
    for (const child of this.#processes) {
      const exited = once(child, "exit");
      child.kill("SIGKILL");
      await exited;
    }
    rmSync(this.folder, { recursive: true });
  }
}

export function textRequest(text: string): GenerateRequest {
  return {
    input: { kind: "text", text },
    sampling: {
      temperature: 0,
      topP: 1,
      presencePenalty: 0,
      frequencyPenalty: 0,
      logitBias: [],
    },
    choices: 1,
    stop: [],
    format: "text",
  };
}

export async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

export function deltaText(events: readonly EngineEvent[], choice = 0): string {
  let text = "";
  for (const event of events) {
    if (event.type === "delta" && event.choice === choice) text += event.text;
  }
  return text;
}

/** The scripted engine's answer. */
export function scriptedText(tokens: number): string {
  return Array.from({ length: tokens }, (_, index) => `t${index} `).join("");
}
