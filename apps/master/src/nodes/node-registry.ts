import type { ServerDuplexStream } from "@grpc/grpc-js";
import { systemClock } from "@heddle/base/clock";
import { AppError } from "@heddle/base/errors";
import type { DeploymentSpec, ReplicaStatus } from "@heddle/contracts/engine";
import type { AttachReply } from "@heddle/contracts/generated/heddle/v1/AttachReply";
import type { NodeReport__Output } from "@heddle/contracts/generated/heddle/v1/NodeReport";
import type { Register__Output } from "@heddle/contracts/generated/heddle/v1/Register";
import { isRevoked, revocationsSince } from "@heddle/control/revocations";
import type { Log } from "@heddle/observability/logger";
import { CLOCK_SKEW_MS } from "@heddle/pki/certificate-authority";
import type { NodeClaim } from "@heddle/pki/node-name";
import { callerOf, type NodeCredentials, revokedError } from "@heddle/rpc/credentials";
import { toStatus } from "@heddle/rpc/status";
import { Inject } from "@nestjs/common";
import { LOGGER, MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { CREDENTIALS } from "../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { AttachedNode, SUSPECT_INTERVALS } from "./attached-node.ts";
import type { NodeDirectory, NodeView, PullProgress } from "./node-directory.ts";
import { checkOwnsNode, ownsTask } from "./ownership.ts";
import { ProgressBook } from "./progress/progress-book.ts";
import { ReplicaIndex } from "./replica-index.ts";
import { Divisions } from "./replicas/divisions.ts";
import { WorkerLink } from "./worker-link.ts";

export type AttachStream = ServerDuplexStream<NodeReport__Output, AttachReply>;

/**
 * - `nodes`: one attached, left, or reported other replicas than before.
 * - `figures`: one reported figures alone.
 * - `room`: a call ended, or a stream opened or closed.
 */
export type RegistryChange = "nodes" | "figures" | "room";

/** Intervals without a heartbeat after which a node is dropped. */
const GONE_INTERVALS = 10;
/** Intervals for which calls wait for a worker that left, whose process may be restarting. */
const RETURN_INTERVALS = 30;
/** Bound on attached nodes. */
const MAX_NODES = 4_096;

type RegistryConfig = Pick<
  MasterConfig,
  "masterId" | "fixedTimes" | "peers" | "certificateLifetimeMs"
>;
/** The nodes' progress of running tasks goes there. */
type Progress = Pick<ProgressBook, "take">;

/** The nodes attached to this master, by id: identity, last report, connection. */
export class NodeRegistry implements NodeDirectory {
  readonly divisions: Divisions;
  readonly #config: RegistryConfig;
  readonly #credentials: NodeCredentials;
  readonly #control: Pick<ControlPlane, "state" | "group">;
  readonly #progress: Progress;
  readonly #log: Log;
  readonly #clock = systemClock;
  readonly #nodes = new Map<string, { node: AttachedNode; stream: AttachStream }>();
  readonly #index = new ReplicaIndex();
  /** When nodes that left last reported, in the order of their leaving. */
  readonly #lastSeenMs = new Map<string, number>();
  readonly #startedAtMs: number;
  /** Links of nodes that left with open answers, by incarnation. */
  readonly #retired = new Map<string, WorkerLink>();
  readonly #listeners = new Set<(change: RegistryChange) => void>();
  readonly #sweep: NodeJS.Timeout;
  /** The masters and revocations last announced to the nodes. */
  #announced = "";
  /** Initially the start of this master: before that no worker could attach. */
  #workerLeftAtMs: number;
  #closed: AppError | undefined;
  /**
   * Heartbeats of all nodes: a node that attaches again continues from here, above its earlier
   * count.
   */
  #heartbeats = 0;
  workersLost = 0;

  constructor(
    @Inject(MASTER_CONFIG) config: RegistryConfig,
    @Inject(CREDENTIALS) credentials: NodeCredentials,
    @Inject(CONTROL_PLANE) control: Pick<ControlPlane, "state" | "group">,
    @Inject(ProgressBook) progress: Progress,
    @Inject(LOGGER) log: Log,
  ) {
    this.#config = config;
    this.#credentials = credentials;
    this.#control = control;
    this.#progress = progress;
    this.#log = log;
    this.divisions = new Divisions(control, credentials);
    this.#startedAtMs = this.#clock.monotonicMs();
    this.#workerLeftAtMs = this.#startedAtMs;
    this.#sweep = setInterval(() => {
      this.#dropSilent();
      this.#dropRevoked();
      this.#announce();
    }, this.#heartbeatMs);
    this.#sweep.unref();
  }

  get #heartbeatMs(): number {
    return this.#config.fixedTimes.nodeHeartbeatMs;
  }

  /** All masters of the group by name, each at the address where it is reached now. */
  get #masters(): ReadonlyMap<string, string> {
    const { members = [] } = this.#control.group?.status() ?? {};
    const { peers } = this.#config;
    return new Map(members.map(({ name, address }) => [name, peers.get(name) ?? address]));
  }

  /** Returns the function that unsubscribes. */
  onChange(listener: (change: RegistryChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  nodes(): readonly NodeView[] {
    const clock = this.#clock;
    const offsetMs = clock.wallMs() - clock.monotonicMs();
    return [...this.#nodes.values()].map(({ node }) => node.view(offsetMs));
  }

  /** Whether the node is a worker with recent heartbeats. */
  reports(nodeId: string): boolean {
    const found = this.#nodes.get(nodeId);
    return found !== undefined && isLive(found.node);
  }

  silentMs(nodeId: string): number {
    const attached = this.#nodes.get(nodeId)?.node.lastSeenMs;
    const lastSeenMs = attached ?? this.#lastSeenMs.get(nodeId) ?? this.#startedAtMs;
    return this.#clock.monotonicMs() - lastSeenMs;
  }

  /** The workers with recent heartbeats that work for this cluster. */
  workers(): AttachedNode[] {
    const found: AttachedNode[] = [];
    for (const { node } of this.#nodes.values()) {
      if (isLive(node) && node.refusesLeader === undefined) found.push(node);
    }
    return found;
  }

  /** The attached processes, silent ones included. */
  *incarnations(): Generator<string> {
    for (const { node } of this.#nodes.values()) yield node.register.incarnation;
  }

  /** Whether a worker is attached, or left recently and may return. */
  expectsWorkers(): boolean {
    for (const { node } of this.#nodes.values()) if (isLive(node)) return true;
    const detachedMs = this.#clock.monotonicMs() - this.#workerLeftAtMs;
    return detachedMs < RETURN_INTERVALS * this.#heartbeatMs;
  }

  /** The workers with a replica of the deployment, split by whether their heartbeats arrive. */
  holders(deployment: string): { readonly live: AttachedNode[]; readonly silent: AttachedNode[] } {
    const live: AttachedNode[] = [];
    const silent: AttachedNode[] = [];
    for (const node of this.#index.holders(deployment)) (isLive(node) ? live : silent).push(node);
    return { live, silent };
  }

  replicasOf(deployment: string): ReplicaStatus[] {
    const found: ReplicaStatus[] = [];
    for (const node of this.#index.holders(deployment)) {
      const replica = node.replica(deployment);
      if (replica) found.push(replica);
    }
    return found;
  }

  async *pull(
    { key, weights }: DeploymentSpec,
    signal: AbortSignal,
  ): AsyncGenerator<PullProgress, void> {
    if (!weights) {
      const message = "the model is served by an upstream, which has no weights to pull";
      throw new AppError("invalid_value", message, { param: "id" });
    }
    const workers = this.workers().sort((a, b) => a.replicas.length - b.replicas.length);
    if (workers.length === 0) {
      throw new AppError("unavailable", "no worker is attached that could pull weights: start one");
    }
    const failed = workers.filter((worker) => worker.replica(key)?.phase === "failed");
    for (const { link } of failed.length > 0 ? failed : workers.slice(0, 1)) {
      if (link) yield* link.pull(weights, signal);
    }
  }

  /** Serves Cluster.Attach for one node until its stream ends. */
  attach(stream: AttachStream): void {
    if (this.#closed) {
      stream.emit("error", toStatus(this.#closed));
      return;
    }
    let node: AttachedNode | undefined;
    const unregistered = setTimeout(
      () => refuse(stream, "the first message must be `register`"),
      GONE_INTERVALS * this.#heartbeatMs,
    );
    const leave = () => {
      clearTimeout(unregistered);
      if (node) this.#remove(node, stream);
    };
    stream.on("data", (report: NodeReport__Output) => {
      try {
        if (report.register && !node) {
          clearTimeout(unregistered);
          node = this.#add(report.register, callerOf(stream), stream);
        } else if (report.heartbeat && node) this.#onHeartbeat(node, report.heartbeat);
        else refuse(stream, "the first message must be `register`, the others `heartbeat`");
      } catch (error) {
        leave();
        stream.emit("error", toStatus(error));
      }
    });
    stream.once("end", () => {
      leave();
      stream.end();
    });
    stream.once("cancelled", leave);
    stream.once("error", leave);
  }

  /** `why` is sent to the nodes; on the removal of a master they stop connecting to it. */
  close(why = new AppError("unavailable", "this master is shutting down")): void {
    clearInterval(this.#sweep);
    this.divisions.close();
    this.#closed = why;
    const attached = [...this.#nodes.values()];
    this.#listeners.clear();
    this.#nodes.clear();
    for (const { node, stream } of attached) {
      stream.emit("error", toStatus(why));
      node.link?.close();
    }
    for (const link of this.#retired.values()) link.close();
    this.#retired.clear();
  }

  #add(register: Register__Output, caller: NodeClaim, stream: AttachStream): AttachedNode {
    const [log, clock] = [this.#log, this.#clock];
    if (register.nodeId === "" || register.kind === "NODE_KIND_UNSPECIFIED") {
      throw new AppError("invalid_value", "a node registers with its node_id and kind");
    }
    this.#checkIdentity(register, caller);
    const previous = this.#nodes.get(register.nodeId);
    if (!previous && this.#nodes.size >= MAX_NODES) {
      throw new AppError("overloaded", `${MAX_NODES} nodes are attached to this master`);
    }
    // The newer stream wins: the older belongs to a process that ended or a broken connection.
    if (previous) {
      this.#remove(previous.node, previous.stream);
      previous.stream.end();
    }
    const link = this.#linkOf(register);
    const node = new AttachedNode(register, link, clock.monotonicMs(), this.#heartbeats);
    this.#nodes.set(register.nodeId, { node, stream });
    const { nodeId, name, address, version } = register;
    log.info({ node: nodeId, kind: register.kind, name, address, version }, "a node attached");
    stream.write(this.#reply());
    this.#changed("nodes");
    return node;
  }

  /** A node registers in its authenticated role, and under an id that no other name owns. */
  #checkIdentity({ kind, name, nodeId }: Register__Output, caller: NodeClaim): void {
    const role = kind === "NODE_KIND_WORKER" ? "worker" : "parameter-server";
    const attached = this.#nodes.get(nodeId)?.node.register;
    if (caller.role !== role || caller.name !== name || (attached && attached.name !== name)) {
      const message = `${caller.role} ${caller.name} cannot attach as ${role} ${name} with the node id ${nodeId}`;
      throw new AppError("permission_denied", message);
    }
    checkOwnsNode(this.#control.state, caller, nodeId);
  }

  #reply(): AttachReply {
    const { masterId } = this.#config;
    const cluster = this.#control.group?.status().cluster ?? "";
    const masters = this.#masters;
    const [members, addresses] = [[...masters.keys()], [...masters.values()]];
    const revoked = this.#revoked.map(([node, atMs]) => ({ node, atMs }));
    const intervalMs = this.#heartbeatMs;
    return { heartbeatIntervalMs: intervalMs, masterId, members, addresses, cluster, revoked };
  }

  /** Revocations of certificates that may not have expired. */
  get #revoked(): ReturnType<typeof revocationsSince> {
    const lifetimeMs = this.#config.certificateLifetimeMs + 2 * CLOCK_SKEW_MS;
    return revocationsSince(this.#control.state.cluster, this.#clock.wallMs() - lifetimeMs);
  }

  /**
   * Nodes look for a new master, and no longer for a removed one even if it stopped before it could
   * announce that.
   */
  #announce(): void {
    const known = JSON.stringify([...this.#masters, ...this.#revoked]);
    if (known === this.#announced) return;
    this.#announced = known;
    const reply = this.#reply();
    for (const { stream } of this.#nodes.values()) stream.write(reply);
  }

  /** Reuses the link of the same process; cuts that of an earlier process. */
  #linkOf(register: Register__Output): WorkerLink | undefined {
    if (register.kind !== "NODE_KIND_WORKER") return undefined;
    const kept = this.#retired.get(register.incarnation);
    this.#retired.delete(register.incarnation);
    if (kept?.address === register.address && kept.reinstate()) return kept;
    kept?.close();
    return new WorkerLink({
      node: register.nodeId,
      address: register.address,
      credentials: this.#credentials,
      log: this.#log,
      onChange: () => this.#changed("room"),
      onLost: (calls) => {
        this.workersLost += calls;
      },
    });
  }

  #onHeartbeat(node: AttachedNode, heartbeat: NonNullable<NodeReport__Output["heartbeat"]>): void {
    const before = node.refusesLeader;
    const hasNews = node.onHeartbeat(heartbeat, this.#clock.monotonicMs());
    this.#heartbeats += 1;
    this.#logRefusal(node, before);
    this.#index.update(node);
    if (node.replicas.length > 0) node.link?.open();
    const { state } = this.#control;
    for (const status of heartbeat.tasks) {
      if (status.task && ownsTask(state, node.id, status.task)) this.#progress.take(status);
    }
    this.#changed(hasNews ? "nodes" : "figures");
  }

  #logRefusal({ id, register, refusesLeader }: AttachedNode, before: string | undefined): void {
    if (refusesLeader === before) return;
    const log = this.#log;
    const { name } = register;
    if (refusesLeader === undefined)
      log.info({ node: id, name }, "a node follows the leader again");
    else log.warn({ node: id, name, why: refusesLeader }, "a node refuses the leader");
  }

  #remove(node: AttachedNode, stream: AttachStream): void {
    if (this.#nodes.get(node.id)?.stream !== stream) return;
    this.#nodes.delete(node.id);
    this.#index.remove(node);
    this.#noteLastSeen(node);
    this.#log.info({ node: node.id, name: node.register.name }, "a node left");
    if (node.link) this.#workerLeftAtMs = this.#clock.monotonicMs();
    node.link?.retire();
    for (const [incarnation, link] of this.#retired) {
      if (link.closed) this.#retired.delete(incarnation);
    }
    if (node.link && !node.link.closed) this.#retired.set(node.register.incarnation, node.link);
    this.#changed("nodes");
  }

  /**
   * Counts silence in runs of this timer, not in time. While this process was stalled the timer did
   * not run, and unread heartbeats age no node.
   */
  #dropSilent(): void {
    const log = this.#log;
    for (const { node, stream } of [...this.#nodes.values()]) {
      node.silentIntervals += 1;
      if (node.silentIntervals <= GONE_INTERVALS) continue;
      log.warn({ node: node.id }, "a node sent no heartbeat and is dropped");
      this.#remove(node, stream);
      refuse(stream, "no heartbeat came in time: attach again");
    }
  }

  /** Their calls are refused; this ends the streams that were open before. */
  #dropRevoked(): void {
    const { cluster } = this.#control.state;
    for (const { node, stream } of [...this.#nodes.values()]) {
      const shown = stream.getAuthContext().sslPeerCertificate;
      const caller = callerOf(stream);
      if (!shown || !isRevoked(cluster, caller, Date.parse(shown.valid_from))) continue;
      this.#log.warn({ node: node.id, name: caller.name }, "a node was revoked and is dropped");
      this.#remove(node, stream);
      node.link?.close();
      stream.emit("error", toStatus(revokedError(caller)));
    }
  }

  #noteLastSeen({ id, lastSeenMs }: AttachedNode): void {
    this.#lastSeenMs.delete(id);
    this.#lastSeenMs.set(id, lastSeenMs);
    const [oldest] = this.#lastSeenMs.keys();
    if (oldest !== undefined && this.#lastSeenMs.size > MAX_NODES) this.#lastSeenMs.delete(oldest);
  }

  #changed(change: RegistryChange): void {
    for (const listener of this.#listeners) listener(change);
  }
}

function isLive({ link, silentIntervals }: AttachedNode): boolean {
  return link !== undefined && silentIntervals <= SUSPECT_INTERVALS;
}

function refuse(stream: AttachStream, message: string): void {
  stream.emit("error", toStatus(new AppError("invalid_value", message)));
}
