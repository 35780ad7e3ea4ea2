import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { Metadata, type Server, type ServerDuplexStream } from "@grpc/grpc-js";
import type { Heartbeat } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import type { Register } from "@heddle/contracts/generated/heddle/v1/Register";
import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";
import { Attachments } from "@heddle/node-agent/masters/attachments";
import { KnownMasters } from "@heddle/node-agent/masters/known-masters";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { FollowedCluster } from "@heddle/rpc/followed-cluster";
import { workerInferenceService, workerTasksService } from "@heddle/rpc/proto";
import { bindServer } from "@heddle/rpc/server";
import {
  type LogBook,
  LogShipper,
  type ShippedLog,
} from "../../apps/worker/dist/logs/log-shipper.js";
import { keyOf } from "../../apps/worker/dist/records/task-plan.js";
import type { WorkersSettings } from "./settings.ts";
import { SimulatedSessions } from "./simulated-sessions.ts";
import { now } from "./simulated-task.ts";

const GIB = 2 ** 30;
const GPUS = 8;
const CORES = 64;

/**
 * One worker to the masters: the product's attachment, heartbeats, gRPC server, log shipping and
 * lease, over a machine and tasks that do not exist.
 */
export class SimulatedWorker {
  readonly sessions: SimulatedSessions;
  /** Keyed by host:port of the master: when this worker attached last. */
  readonly attachedMs = new Map<string, number>();
  readonly #attachments: Attachments;
  readonly #shippers: readonly LogShipper[];
  readonly #shipped = new Map<string, Set<string>>();

  private constructor(
    settings: WorkersSettings,
    parts: {
      readonly register: Register;
      readonly credentials: NodeCredentials;
      readonly followed: FollowedCluster;
      readonly sessions: SimulatedSessions;
    },
    onAttempt: () => void,
  ) {
    const { register, credentials, followed, sessions } = parts;
    this.sessions = sessions;
    const log = this.#logOf(onAttempt);
    const { masters } = settings;
    this.#attachments = new Attachments({
      masters: new KnownMasters({ given: masters, staysHere: true, followed }),
      credentials,
      followed,
      log,
      register: () => register,
      heartbeat: () => heartbeatOf(register),
    });
    const nodeId = register.nodeId ?? "";
    const whileRemoved = async () => undefined;
    this.#shippers = masters.map(
      (master) =>
        new LogShipper({ master, credentials, nodeId, whileRemoved, log }, this.#book(masters)),
    );
  }

  static async start(
    settings: WorkersSettings,
    index: number,
    onAttempt: () => void,
  ): Promise<SimulatedWorker> {
    const name = `worker-${index}`;
    const folder = join(settings.folder, name);
    mkdirSync(folder, { recursive: true });
    const { clusterToken } = settings;
    const credentials: NodeCredentials = { clusterToken, node: { role: "worker", name } };
    const followed = new FollowedCluster(folder);
    const place = { host: "127.0.0.1", port: 0, credentials, followed };
    const { server, address } = await bindServer(place);
    let worker: SimulatedWorker | undefined;
    const sessions = new SimulatedSessions(() => worker?.wake());
    serve(server, sessions);
    const register = registrationOf(name, address, settings.rack);
    worker = new SimulatedWorker(
      settings,
      { register, credentials, followed, sessions },
      onAttempt,
    );
    return worker;
  }

  wake(): void {
    for (const shipper of this.#shippers) shipper.wake();
  }

  get attachedMasters(): number {
    return this.#attachments.attachedCount;
  }

  /** Attachments report their successes and failures to their log alone. */
  #logOf(onAttempt: () => void): Log {
    const info = (fields: object, message: string) => {
      const { master } = fields as { readonly master?: string };
      if (master === undefined) return;
      if (message === "attached") this.attachedMs.set(master, now());
      else if (message.startsWith("not attached")) this.attachedMs.delete(master);
      else return;
      onAttempt();
    };
    return { info, warn: info, error: info, debug: () => undefined } as unknown as Log;
  }

  #book(masters: readonly string[]): LogBook {
    return {
      logs: () => this.sessions.logged().map(shippedOf),
      onDurable: () => undefined,
      onShipped: (master, { id }) => {
        const key = keyOf(id as TaskId__Output);
        const holders = (this.#shipped.get(key) ?? new Set()).add(master);
        this.#shipped.set(key, holders);
        if (holders.size < Math.floor(masters.length / 2) + 1) return;
        this.sessions.onShipped(id as TaskId__Output);
        this.#shipped.delete(key);
      },
    };
  }
}

function shippedOf({
  id,
  grant,
  log,
}: ReturnType<SimulatedSessions["logged"]>[number]): ShippedLog {
  return { id, grant, stream: "stdout", log };
}

function serve(server: Server, sessions: SimulatedSessions): void {
  server.addService(workerTasksService, {
    Session: (stream: Parameters<SimulatedSessions["serve"]>[0]) => sessions.serve(stream),
  });
  server.addService(workerInferenceService, {
    Session: (stream: ServerDuplexStream<unknown, unknown>) => {
      stream.sendMetadata(new Metadata());
      stream.on("data", () => undefined);
      stream.once("end", () => stream.end());
    },
  });
}

function registrationOf(name: string, address: string, rack: string): Register {
  return {
    nodeId: `node-${name}`,
    incarnation: `${name}-${process.pid}-${Date.now()}`,
    kind: "NODE_KIND_WORKER",
    name,
    address,
    version: "bench",
    hardware: {
      platform: "linux-x64",
      cpuModel: "simulated",
      cpuCount: CORES,
      memoryBytes: 512 * GIB,
      gpus: gpusOf(name),
      localSsdBytes: 1_000 * GIB,
      networkMbps: 100_000,
      hostId: `host-${name}`,
      diskId: `disk-${name}`,
    },
    labels: { zone: rack },
    rack,
    executors: ["process"],
    maxTasks: CORES,
    maxTasksChosen: true,
    taskIsolation: "none",
  };
}

function gpusOf(name: string) {
  return Array.from({ length: GPUS }, (_, index) => ({
    index,
    uuid: `${name}-gpu-${index}`,
    name: "SIM-80",
    memoryBytes: 80 * GIB,
    memoryUsedBytes: Math.round(Math.random() * GIB),
    utilizationPercent: Math.random() * 100,
    temperatureCelsius: 40 + Math.random() * 20,
    powerWatts: 100 + Math.random() * 200,
    simulated: true,
  }));
}

/** Figures vary with each heartbeat, as those of real machines do. */
function heartbeatOf({ name = "" }: Register): Heartbeat {
  return {
    cpuPercent: Math.random() * 100,
    memoryUsedBytes: Math.round((10 + Math.random()) * GIB),
    diskFreeBytes: 900 * GIB,
    diskTotalBytes: 1_000 * GIB,
    gpus: gpusOf(name),
    deviceReadings: 1,
  };
}
