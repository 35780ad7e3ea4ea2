import "reflect-metadata";
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Server } from "@grpc/grpc-js";
import type { EngineOptions, ReplicaStatus } from "@heddle/contracts/engine";
import type { Heartbeat } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import type { Register } from "@heddle/contracts/generated/heddle/v1/Register";
import type { ArtifactBytes } from "@heddle/engines/weights/fetch-source";
import { Health } from "@heddle/rpc/health";
import { Attachments } from "@heddle/rpc/node/attachments";
import { FollowedCluster } from "@heddle/rpc/node/followed-cluster";
import { nodeIdentity } from "@heddle/rpc/node/identity";
import type { NodeLog } from "@heddle/rpc/node/log";
import { Machine } from "@heddle/rpc/node/machine";
import type { NodeFlags } from "@heddle/rpc/node/node-flags";
import type { WorkerOffer } from "@heddle/rpc/node/offer-flags";
import { nodeNameFor, ownCredentials } from "@heddle/rpc/node/own-credentials";
import type { RunningNode } from "@heddle/rpc/node/run-node";
import { encodeReplica } from "@heddle/rpc/node-codec";
import { workerInferenceService } from "@heddle/rpc/proto";
import { bindServer } from "@heddle/rpc/server";
import { type DynamicModule, type INestMicroservice, Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { artifactSource } from "./artifacts/artifact-source.ts";
import { ArtifactStore } from "./artifacts/artifact-store.ts";
import { openReplica } from "./artifacts/open-replica.ts";
import { BoundGrpcTransport } from "./grpc-transport.ts";
import type { EnginePorts } from "./inference/engine-ports.ts";
import { InferenceSession } from "./inference/inference-session.ts";
import { PULL_WEIGHTS, REPLICAS, ReplicasController } from "./inference/models.controller.ts";
import { ReplicaSet } from "./inference/replica-set.ts";
import { withSimulatedGpus } from "./inference/simulated-device.ts";
import { TaskService } from "./tasks/task-service.ts";

export interface WorkerOptions extends NodeFlags, WorkerOffer {
  readonly version: string;
  /** Defaults of engine options that a deployment leaves open. */
  readonly engineDefaults: EngineOptions;
}

/** A master that does not read the ends of its answers within this time is disconnected. */
const takenMs = 1_000;
/** The grace of tasks where the caller that ends this process does not wait. */
const maxTaskGraceMs = 3_000;
const defaultMaxArtifactBytes = 50 * 2 ** 30;
/** As long as the masters keep an ended job. */
const defaultMaxArtifactAgeMs = 7 * 24 * 3_600_000;

@Module({})
class WorkerModule {
  static of(replicas: ReplicaSet, ports: EnginePorts): DynamicModule {
    return {
      module: WorkerModule,
      controllers: [ReplicasController],
      providers: [
        { provide: REPLICAS, useValue: replicas },
        { provide: PULL_WEIGHTS, useValue: ports.pullWeights },
      ],
    };
  }
}

/** Starts a worker: serves models over gRPC and stays attached to every master. */
export async function startWorker(
  options: WorkerOptions,
  given: EnginePorts,
  log: NodeLog,
): Promise<RunningNode> {
  const nodeId = nodeIdentity(options.dataDirectory);
  const name = nodeNameFor(options);
  const credentials = await ownCredentials(options, "worker", log);
  const machine = new Machine(options.dataDirectory, options);
  await machine.start();
  const kept = keptFiles(options, log);
  const ports = withArtifacts(
    given,
    artifactSource({ ...options, store: kept.artifacts, credentials }),
  );
  let attachments: Attachments | undefined;
  const engines = withSimulatedGpus(ports, () => machine.gpus());
  const report = () => attachments?.report();
  const replicas = new ReplicaSet(engines, options.engineDefaults, log, report);
  const health = new Health();
  const followed = new FollowedCluster(options.dataDirectory);
  const { grpcHost: host, grpcPort: port } = options;
  const { server, address } = await bindServer({ host, port, credentials, followed });
  const advertised = options.advertise ?? address;
  const tasks = await TaskService.open(
    {
      ...{ ...options, credentials, nodeId, nodeName: name, ...kept, followed, log },
      gpus: () => machine.gpus(),
      removals: removalsOf(() => attachments),
    },
    advertised.slice(0, advertised.lastIndexOf(":")),
  );
  const sessions = new Set<InferenceSession>();
  const app = await serve(server, { replicas, sessions, ports, health, tasks });
  const register = registration(options, { nodeId, name, address: advertised, machine, tasks });
  attachments = new Attachments({
    masters: options.masters,
    credentials,
    register,
    followed,
    heartbeat: (master) => heartbeatOf(machine, replicas.statuses(master), tasks),
    log,
  });
  endTasksOnFaults(machine, tasks, log, report);
  const close = async (drainMs: number) => {
    health.stopServing();
    // Tasks end while the masters are still reachable for their reports.
    await tasks.close(Math.min(drainMs, maxTaskGraceMs));
    machine.stop();
    // A master sends nothing more to a node that has left, but reads its remaining answers.
    await attachments?.close();
    await drained(sessions, replicas, drainMs);
    await replicas.close();
    await finished(sessions);
    await app.close();
    credentials.close();
  };
  return { nodeId, address: advertised, close };
}

function heartbeatOf(
  machine: Machine,
  replicas: readonly ReplicaStatus[],
  tasks: TaskService,
): Heartbeat {
  return {
    ...machine.usage(),
    replicas: replicas.map(encodeReplica),
    tasks: tasks.progress(),
    refusesLeader: tasks.refusal,
  };
}

/** The removed masters; none before the attachments exist. */
function removalsOf(
  attachments: () => Attachments | undefined,
): Pick<Attachments, "isRemoved" | "whileRemoved"> {
  return {
    isRemoved: (master) => attachments()?.isRemoved(master) ?? false,
    whileRemoved: async (master, signal) => attachments()?.whileRemoved(master, signal),
  };
}

/** A faulty GPU ends the tasks that hold it, and is reported to the masters at once. */
function endTasksOnFaults(
  machine: Machine,
  tasks: TaskService,
  log: NodeLog,
  report: () => void,
): void {
  machine.onFault((gpu) => {
    log.error({ gpu: gpu.index, simulated: gpu.simulated, fault: gpu.fault }, "a GPU is sick");
    tasks.onGpuFault(gpu);
    report();
  });
}

/** The ports, with weights from artifacts of jobs. */
function withArtifacts(ports: EnginePorts, readArtifact: ArtifactBytes): EnginePorts {
  return {
    ...ports,
    pullWeights: (weights, how) => ports.pullWeights(weights, { ...how, readArtifact }),
  };
}

/** The stores of tasks' files, here and in a second place. */
function keptFiles(options: WorkerOptions, log: NodeLog) {
  const { dataDirectory, maxArtifactBytes: maxBytes = defaultMaxArtifactBytes } = options;
  const maxAgeMs = options.maxArtifactAgeMs ?? defaultMaxArtifactAgeMs;
  const place = options.artifactReplica;
  const replica = place ? openReplica(place, maxAgeMs) : undefined;
  const root = join(dataDirectory, "artifacts");
  const onUncopied = (error: unknown) =>
    log.warn({ error: String(error) }, "artifacts have no second copy yet");
  const artifacts = new ArtifactStore({ root, maxBytes, maxAgeMs, replica, onUncopied });
  return { artifacts, replica, maxCopyBytes: maxBytes };
}

/** The node's report to each master on attachment. */
function registration(
  options: WorkerOptions,
  facts: {
    readonly nodeId: string;
    readonly name: string;
    readonly address: string;
    readonly machine: Machine;
    readonly tasks: TaskService;
  },
): Register {
  const { nodeId, name, address, machine, tasks } = facts;
  return {
    ...{ nodeId, name, address, version: options.version, incarnation: randomUUID() },
    kind: "NODE_KIND_WORKER",
    hardware: machine.hardware(),
    labels: { ...options.labels },
    taints: [...options.taints],
    rack: options.rack,
    fabric: options.fabric,
    executors: tasks.executors,
    algorithms: tasks.algorithms,
    environments: tasks.environments,
    algorithmSchemas: tasks.schemas,
    taskIsolation: tasks.isolation,
  };
}

interface Served {
  readonly replicas: ReplicaSet;
  /** The open streams of requests of the masters. */
  readonly sessions: Set<InferenceSession>;
  readonly ports: EnginePorts;
  readonly health: Health;
  readonly tasks: TaskService;
}

async function serve(server: Server, served: Served): Promise<INestMicroservice> {
  const { replicas, sessions, ports, health, tasks } = served;
  const strategy = new BoundGrpcTransport(server, ["heddle.v1.WorkerModels"], (bound) => {
    health.addTo(bound);
    tasks.addTo(bound);
    bound.addService(workerInferenceService, {
      session: (stream: ConstructorParameters<typeof InferenceSession>[0]) => {
        const session = new InferenceSession(stream, replicas);
        sessions.add(session);
        stream.once("close", () => sessions.delete(session));
      },
    });
  });
  const app = await NestFactory.createMicroservice(WorkerModule.of(replicas, ports), {
    strategy,
    logger: ["error", "warn", "fatal"],
  });
  await app.listen();
  return app;
}

/** Resolves when the engines are done, and the readers of their answers have caught up. */
async function drained(
  sessions: ReadonlySet<InferenceSession>,
  replicas: ReplicaSet,
  drainMs: number,
): Promise<void> {
  const end = performance.now() + drainMs;
  const isBusy = () => replicas.openRequests > 0 || [...sessions].some((each) => each.openRequests);
  while (performance.now() < end && isBusy()) await delay(20);
}

/** Resolves when the masters have read the last answers, which would be lost with the process. */
async function finished(sessions: ReadonlySet<InferenceSession>): Promise<void> {
  const all = Promise.allSettled([...sessions].map((session) => session.finish()));
  await Promise.race([all, delay(takenMs)]);
}
