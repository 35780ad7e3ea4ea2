import { systemClock } from "@heddle/base/clock";
import type { TaskStatus__Output } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Health } from "@heddle/rpc/health";
import type { NodeLog } from "@heddle/rpc/node/log";
import { clusterService } from "@heddle/rpc/proto";
import type { BoundServer } from "@heddle/rpc/server";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { type DispatchStats, ReplicaDispatch } from "../inference/dispatch/inference-dispatch.ts";
import type { InferenceDispatch } from "../inference/dispatch/inference-port.ts";
import type { NodeDirectory } from "./node-directory.ts";
import { type AttachStream, NodeRegistry } from "./node-registry.ts";
import { ReplicaController } from "./replicas/replica-controller.ts";
import { RegistryReplicas } from "./replicas/replica-source.ts";

export interface ClusterLinkOptions {
  /** Where the nodes' calls are served; not closed with the link. */
  readonly server: BoundServer;
  readonly credentials: NodeCredentials;
  readonly masterId: string;
  readonly control: ControlPlane;
  readonly logger: NodeLog;
  /** Hears what heartbeats say of running tasks. */
  readonly progress?: { take(status: TaskStatus__Output): void } | undefined;
  /** How often nodes report; 1,000 where absent. */
  readonly heartbeatIntervalMs?: number | undefined;
  /** Calls that may wait per deployment (1,024), and for how long (30 s; while it loads 60 s). */
  readonly maxQueued?: number | undefined;
  readonly maxWaitMs?: number | undefined;
  readonly maxLoadingWaitMs?: number | undefined;
}

export interface ClusterLink {
  readonly dispatch: InferenceDispatch;
  readonly directory: NodeDirectory;
  /** host:port for the nodes' --masters. */
  readonly grpcAddress: string;
  stats(): ClusterStats;
  close(): void;
}

/** Figures for /metrics. */
export interface ClusterStats extends DispatchStats {
  /** Calls that failed because their worker was lost, since the start. */
  readonly workerLost: number;
}

/** The master's side of the cluster: nodes attach here, models are placed and calls dispatched. */
export function startClusterLink(options: ClusterLinkOptions): ClusterLink {
  const { server: bound, credentials, masterId, control, logger } = options;
  const clock = systemClock;
  const random = Math.random;
  const { server, address } = bound;
  const heartbeatIntervalMs = options.heartbeatIntervalMs ?? 1_000;
  const registry = new NodeRegistry({
    masterId,
    members: () =>
      control.group
        ?.status()
        .members.map(({ name }) => name)
        .sort() ?? [],
    cluster: () => control.group?.status().cluster ?? "",
    credentials,
    control,
    heartbeatIntervalMs,
    progress: options.progress,
    clock,
    log: logger,
  });
  const dispatch = new ReplicaDispatch({
    replicas: new RegistryReplicas(registry, control),
    clock,
    random,
    maxQueued: options.maxQueued ?? 1_024,
    maxWaitMs: options.maxWaitMs ?? 30_000,
    maxLoadingWaitMs: options.maxLoadingWaitMs ?? 60_000,
  });
  const placement = new ReplicaController(registry, control, { clock, random, log: logger });
  const health = new Health();
  health.addTo(server);
  server.addService(clusterService, { attach: (stream: AttachStream) => registry.attach(stream) });
  const close = () => {
    health.stopServing();
    placement.close();
    dispatch.close();
    const { fault } = control;
    registry.close(fault?.code === "member_removed" ? fault : undefined);
  };
  const stats = () => ({ ...dispatch.stats(), workerLost: registry.workersLost });
  return { dispatch, directory: registry, grpcAddress: address, stats, close };
}
