import { systemClock } from "@heddle/base/clock";
import { ERROR_TABLE } from "@heddle/base/errors";
import type { EngineEvent, ReplicaStatus } from "@heddle/contracts/engine";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import type { AttachedNode } from "../attached-node.ts";
import { leaving } from "../leaving.ts";
import { loadBlockers } from "../machine-offers.ts";
import type { NodeRegistry } from "../node-registry.ts";
import type { Outlook, ReadyReplica, ReplicaSource } from "./ready-replica.ts";
import { stoppedStage } from "./stopped-stage.ts";

/** How often a call of a divided model checks whether one of its workers is stopped. */
const POLL_MS = 1_000;
/** Before its deadline: two checks. */
const LAST_POLL_MS = 2_000;
/** A worker that restarts, or one that takes its place, is there sooner. */
const MAX_STOPPED_MS = 20_000;

/** Dispatch's view of the attached nodes and the desired deployments. */
export class RegistryReplicas implements ReplicaSource {
  readonly #registry: NodeRegistry;
  readonly #control: ControlPlane;

  constructor(registry: NodeRegistry, control: ControlPlane) {
    this.#registry = registry;
    this.#control = control;
  }

  ready(deployment: string): readonly ReadyReplica[] {
    const found: ReadyReplica[] = [];
    const draining: ReadyReplica[] = [];
    for (const node of this.#registry.holders(deployment).live) {
      const how = this.#leaving(node, deployment);
      const replica = how === "drained" ? undefined : this.#readyReplica(node, deployment);
      if (replica) (how === "draining" ? draining : found).push(replica);
    }
    return found.length > 0 ? found : draining;
  }

  outlook(deployment: string): Outlook {
    const outlook = this.#outlook(deployment);
    const { scaling } = this.#control.state.deployments.get(deployment) ?? {};
    return scaling ? { ...outlook, isPatient: true } : outlook;
  }

  #outlook(deployment: string): Outlook {
    if (!this.#control.state.deployments.has(deployment)) {
      const message = `no deployment ${deployment} is registered`;
      return { known: false, loading: false, message };
    }
    const { scaling, replicas } = this.#control.state.deployments.get(deployment) ?? {};
    const { live: holders, silent } = this.#registry.holders(deployment);
    const live = holders.filter((node) => this.#leaving(node, deployment) !== "drained");
    if (silent[0]) {
      const message = `worker ${silent[0].id}, which runs ${deployment}, does not report`;
      return { known: true, loading: true, message };
    }
    const states = live.map((node) => node.replica(deployment));
    const stopped = live.map((node) => this.#stoppedStage(node, deployment)).find(Boolean);
    if (stopped) {
      const loading = this.#stoppedMs(stopped) < MAX_STOPPED_MS;
      return { known: true, loading, message: stopped.message };
    }
    const coming = states.find((state) => state?.phase === "pulling" || state?.phase === "loading");
    if (coming) {
      const { phase, pulledBytes, totalBytes } = coming;
      const done = totalBytes > 0 ? ` (${pulledBytes} of ${totalBytes} bytes)` : "";
      const message = `${deployment} is ${phase}${done}`;
      return { known: true, loading: true, message, pulledBytes, totalBytes };
    }
    const cut = live.find((node) => node.replica(deployment)?.phase === "ready");
    if (cut) {
      const { name, address } = cut.register;
      const message = `worker ${name} runs ${deployment} but is not reached at ${address} yet: check its --advertise`;
      return { known: true, loading: true, message };
    }
    const failed = states.filter((state) => state?.phase === "failed");
    if (failed[0]) {
      const message = `${deployment} could not be brought up: ${failed[0].message}`;
      const broken = failed.every((state) => state && isPermanent(state));
      return { known: true, loading: false, broken, message };
    }
    const workers = this.#registry.workers();
    if (workers.length > 0 && workers.every(({ id }) => leaving(this.#control.state, id))) {
      const message = `every worker that could run ${deployment} is drained: end a drain, or start another worker`;
      return { known: true, loading: false, message };
    }
    if (!this.#registry.expectsWorkers()) {
      const message = `no worker is attached that could run ${deployment}: start one`;
      return { known: true, loading: false, message };
    }
    if (scaling && replicas === 0) {
      const message = `${deployment} had no calls and is being started`;
      return { known: true, loading: true, message };
    }
    // Workers without a replica: placement is about to load one, or waits for memory.
    const { misfit, wholeBytes } = this.#registry.divisions.of(deployment);
    const nodes = this.#registry.nodes();
    const [blocker] = loadBlockers(deployment, nodes, this.#control, () => wholeBytes);
    const message = misfit ?? blocker ?? `${deployment} is about to be placed`;
    return { known: true, loading: true, message };
  }

  /** The last stage of a model serves on a drained worker too, until another one has it or the time is up. */
  #leaving(node: AttachedNode, deployment: string): ReturnType<typeof leaving> {
    const { state } = this.#control;
    const how = leaving(state, node.id);
    if (how !== "drained" || !node.replica(deployment)?.stage) return how;
    const byMs = state.nodes.get(node.id)?.drainByMs ?? 0;
    return systemClock.wallMs() < byMs ? "draining" : how;
  }

  #stoppedStage(node: AttachedNode, deployment: string): ReturnType<typeof stoppedStage> {
    const replica = node.replica(deployment);
    const { state } = this.#control;
    return (
      replica &&
      stoppedStage(node.id, replica, {
        reports: (id) => this.#registry.reports(id),
        nameOf: (id) => state.nodes.get(id)?.offer.name ?? id,
      })
    );
  }

  #stoppedMs({ node, cutMs }: NonNullable<ReturnType<typeof stoppedStage>>): number {
    return cutMs ?? this.#registry.silentMs(node);
  }

  #readyReplica(node: AttachedNode, deployment: string): ReadyReplica | undefined {
    const ready = this.#stoppedStage(node, deployment) ? undefined : readyReplica(node, deployment);
    if (!ready || !node.replica(deployment)?.stage) return ready;
    return { ...ready, start: (...asked) => this.#startStaged(node, asked) };
  }

  /** A call that waits for a stopped worker ends before its deadline, with the reason. */
  #startStaged(
    node: AttachedNode,
    [call, deadlineMs, signal]: Parameters<ReadyReplica["start"]>,
  ): AsyncIterable<EngineEvent> {
    const link = node.link!;
    const started = link.start(call, deadlineMs, signal);
    const beganMs = systemClock.monotonicMs();
    const timer = setInterval(() => {
      if (started.ended) clearInterval(timer);
      const stopped = this.#stoppedStage(node, call.deployment);
      if (started.ended || !stopped) return;
      const isLate =
        deadlineMs > 0 && systemClock.monotonicMs() >= beganMs + deadlineMs - LAST_POLL_MS;
      if (!isLate && this.#stoppedMs(stopped) < MAX_STOPPED_MS) return;
      const code = isLate ? "deadline_exceeded" : "worker_lost";
      started.fail({ code, message: stopped.message });
      link.cancel(started.id);
    }, POLL_MS);
    timer.unref();
    return started;
  }

  onChange(listener: () => void): () => void {
    return this.#registry.onChange(listener);
  }
}

function isPermanent({ failureCode }: ReplicaStatus): boolean {
  return failureCode !== undefined && !ERROR_TABLE[failureCode].retryable;
}

function readyReplica(node: AttachedNode, deployment: string): ReadyReplica | undefined {
  const { link } = node;
  const replica = node.replica(deployment);
  if (!link?.connected || replica?.phase !== "ready") return undefined;
  return {
    node: node.id,
    nodeName: node.register.name,
    features: node.register.engineFeatures,
    isDivided: replica.stage !== undefined,
    // A new process or a restarted engine has an empty prefix cache.
    holder: `${node.register.incarnation}/${replica.load.restarts}`,
    reports: node.heartbeats,
    used: node.usedSequences(replica),
    calls: node.openCalls(replica),
    maxSequences: replica.load.maxSequences,
    maxQueued: replica.load.maxQueued,
    usedBy: (fairKey) => link.taken.sequencesOf(deployment, fairKey),
    yielding: (priority) => link.taken.yielding(deployment, priority),
    start: (call, deadlineMs, signal) => link.start(call, deadlineMs, signal),
  };
}
