import { join } from "node:path";
import type { EngineOptions } from "@heddle/contracts/engine";
import { NodeAgent } from "@heddle/node-agent/node-agent";
import type { NodeFlags } from "@heddle/node-agent/node-flags";
import type { WorkerOffer } from "@heddle/node-agent/offer-flags";
import { type DynamicModule, Module } from "@nestjs/common";
import { artifactSource } from "./artifacts/artifact-source.ts";
import { ArtifactStore } from "./artifacts/artifact-store.ts";
import { openReplica } from "./artifacts/open-replica.ts";
import type { ArtifactReplica } from "./artifacts/replica.ts";
import type { EnginePorts } from "./inference/engine-ports.ts";
import { InferenceController } from "./inference/inference.controller.ts";
import { ReplicaSet } from "./inference/replica-set.ts";
import { ENGINES, ReplicasController } from "./inference/replicas.controller.ts";
import { withSimulatedGpus } from "./inference/simulated-device.ts";
import { TaskService } from "./tasks/task-service.ts";
import { TasksController } from "./tasks/tasks.controller.ts";
import { WORKER_OFFER, WorkerState } from "./worker-state.ts";

const DEFAULT_MAX_ARTIFACT_BYTES = 50 * 2 ** 30;
/** As long as the masters keep an ended job. */
const DEFAULT_MAX_ARTIFACT_AGE_MS = 7 * 24 * 3_600_000;

export interface WorkerOptions extends NodeFlags, WorkerOffer {
  readonly version: string;
  /** Defaults of engine options that a deployment leaves open. */
  readonly engineDefaults: EngineOptions;
}

/** The stores of tasks' files, here and in a second place. */
interface KeptFiles {
  readonly artifacts: ArtifactStore;
  readonly replica: ArtifactReplica | undefined;
  readonly maxCopyBytes: number;
}

/** Nest's module of a worker: models and tasks, on a node of its own. */
export function workerModule(
  node: DynamicModule,
  options: WorkerOptions,
  given: EnginePorts,
): DynamicModule {
  const kept = Symbol("KeptFiles");
  return {
    module: WorkerModule,
    imports: [node],
    controllers: [ReplicasController, InferenceController, TasksController],
    providers: [
      WorkerState,
      { provide: WORKER_OFFER, useValue: options },
      { provide: kept, inject: [NodeAgent], useFactory: (on: NodeAgent) => keptFiles(options, on) },
      {
        provide: ArtifactStore,
        inject: [kept],
        useFactory: ({ artifacts }: KeptFiles) => artifacts,
      },
      {
        provide: ENGINES,
        inject: [NodeAgent, ArtifactStore],
        useFactory: (on: NodeAgent, store: ArtifactStore) => enginesOn(on, store, options, given),
      },
      {
        provide: ReplicaSet,
        inject: [NodeAgent, ENGINES],
        useFactory: (on: NodeAgent, engines: EnginePorts) =>
          new ReplicaSet(engines, options.engineDefaults, on.options.log, () => on.report()),
      },
      {
        provide: TaskService,
        inject: [NodeAgent, kept],
        useFactory: (on: NodeAgent, files: KeptFiles) => openTasks(on, files, options),
      },
    ],
  };
}

@Module({})
class WorkerModule {}

function keptFiles(options: WorkerOptions, node: NodeAgent): KeptFiles {
  const { dataDirectory, maxArtifactBytes: maxBytes = DEFAULT_MAX_ARTIFACT_BYTES } = options;
  const maxAgeMs = options.maxArtifactAgeMs ?? DEFAULT_MAX_ARTIFACT_AGE_MS;
  const place = options.artifactReplica;
  const replica = place ? openReplica(place, maxAgeMs) : undefined;
  const root = join(dataDirectory, "artifacts");
  const onUncopied = (error: unknown) =>
    node.options.log.warn({ error: String(error) }, "artifacts have no second copy yet");
  const artifacts = new ArtifactStore({ root, maxBytes, maxAgeMs, replica, onUncopied });
  return { artifacts, replica, maxCopyBytes: maxBytes };
}

/** The engines of the node's devices, with weights from artifacts of jobs too. */
function enginesOn(
  { credentials, machine }: NodeAgent,
  store: ArtifactStore,
  options: WorkerOptions,
  given: EnginePorts,
): EnginePorts {
  const readArtifact = artifactSource({ ...options, store, credentials });
  const ports: EnginePorts = {
    ...given,
    pullWeights: (weights, how) => given.pullWeights(weights, { ...how, readArtifact }),
  };
  return withSimulatedGpus(ports, () => machine.gpus());
}

function openTasks(
  node: NodeAgent,
  files: KeptFiles,
  options: WorkerOptions,
): Promise<TaskService> {
  const { nodeId, name, address, credentials, followed, machine } = node;
  return TaskService.open(
    {
      ...options,
      ...files,
      credentials,
      nodeId,
      nodeName: name,
      followed,
      log: node.options.log,
      removals: node,
      gpus: () => machine.gpus(),
    },
    address.slice(0, address.lastIndexOf(":")),
  );
}
