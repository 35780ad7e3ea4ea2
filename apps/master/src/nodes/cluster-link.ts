import { systemClock } from "@heddle/base/clock";
import type { TaskStatus__Output } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Health } from "@heddle/rpc/health";
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
  /** The server for the nodes' calls; it stays open when the link closes. */
  readonly server: BoundServer;
  readonly credentials: NodeCredentials;
  readonly masterId: string;
  readonly control: ControlPlane;
  readonly logger: Log;
  /** Receives the progress of running tasks from heartbeats. */
  readonly progress?: { take(status: TaskStatus__Output): void } | undefined;
  /** The interval of the nodes' reports; 1,000 by default. */
  readonly heartbeatIntervalMs?: number | undefined;
  /**
   * Bounds of the dispatch queue per deployment: calls (1,024) and wait (30 s, or 60 s while
   * loading).
   */
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

/** Values for /metrics. */
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
