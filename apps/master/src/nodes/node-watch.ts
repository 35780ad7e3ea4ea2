import { forEachLimit } from "@heddle/base/async/for-each-limit";
import type { Clock } from "@heddle/base/clock";
import { ERROR_TABLE } from "@heddle/base/errors";
import { versionOf } from "@heddle/control/cluster-version";
import type { ControlCommand } from "@heddle/control/command";
import { isStaleReading } from "@heddle/control/jobs/commands/devices";
import { type NodeOffer, replicaKey } from "@heddle/control/jobs/records/records";
import { nodeScalars } from "@heddle/control/jobs/records/task-request";
import { deploymentOf } from "@heddle/control/jobs/scheduling/divided-models";
import { wantedReplicas } from "@heddle/control/jobs/scheduling/replica-claims";
import type { Log } from "@heddle/observability/logger";
import { SCALARS } from "@heddle/scheduler/cluster/units";
import type { NodeScalars } from "@heddle/scheduler/model";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { propose } from "../control-plane/propose.ts";
import { LeaseExpiry } from "./lease-expiry.ts";
import { type MachineShare, machineOffers } from "./machine-offers.ts";
import type { NodeDirectory, NodeView } from "./node-directory.ts";
import { NodeLivenessTracker } from "./node-liveness-tracker.ts";
import { closedOffer, nodeOfferOf, servingHoldsOf } from "./node-offer.ts";

export interface NodeWatchOptions {
  readonly control: ControlPlane;
  readonly directory: NodeDirectory;
  readonly clock: Clock;
  readonly log: Log;
  /** Silence after which a node is lost. */
  readonly nodeLostMs: number;
  /** How long a worker continues without a renewal. */
  readonly leaseMs: number;
}

/** Added to the lease: renewals by a deposed leader, and the rates of two clocks. */
const FENCE_MARGIN_MS = 5_000;
/** The share of `nodeLostMs` after which a node counts as silent. */
const QUIET_SHARE = 1 / 3;
/** Changes of nodes that are proposed at once. */
const MAX_PROPOSALS = 256;
/** How long a node may still report the failure of an earlier replica of the deployment. */
const FAILURE_SETTLES_MS = 5_000;

/**
 * Reconciles the attached nodes with the replicated state: new nodes, changed offers, unhealthy devices
 * and silent nodes.
 */
export class NodeWatch {
  readonly #options: NodeWatchOptions;
  readonly #liveness: NodeLivenessTracker;
  readonly #leases: LeaseExpiry;
  /** The offers of the state as JSON: they are compared at each check and change rarely. */
  readonly #texts = new WeakMap<NodeOffer, string>();
  /** When more than half of the nodes were last silent. */
  #mostQuietAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: NodeWatchOptions) {
    this.#options = options;
    this.#liveness = new NodeLivenessTracker(options.clock);
    this.#leases = new LeaseExpiry(options.clock, options.leaseMs + FENCE_MARGIN_MS);
  }

  /** Forgets all reports: another master led since, and has newer ones. */
  reset(): void {
    this.#liveness.reset();
    this.#leases.reset();
    this.#mostQuietAtMs = Number.NEGATIVE_INFINITY;
  }

  /** One check, and the commands that follow from it. */
  async check(): Promise<void> {
    const { control, directory } = this.#options;
    this.#liveness.begin();
    // Another leader may have newer reports of the other nodes. A node that refuses this leader
    // counts as silent.
    const live = directory
      .nodes()
      .filter((view) => view.refusesLeader === undefined && this.#liveness.isLive(view));
    const attached = new Map(live.map((view) => [view.id, view]));
    const before = machineOffers(live, control);
    const isLowered = await this.#lowerOffers(live, before);
    const shares = isLowered ? machineOffers(live, control) : before;
    await this.#proposeAll(live.flatMap((view) => this.#changesOf(view, shares.get(view.id))));
    await this.#proposeAll(this.#goneReplicas(attached));
    await this.#proposeAll(this.#failedReplicas(attached));
    await this.#proposeAll(this.#readyReplicas(attached));
    const lost = this.#lostNodes(attached);
    if (lost.length > 0) await this.#lose(lost);
    await this.#fence();
  }

  /** Changes of different nodes do not depend on each other, so that they share log entries. */
  async #proposeAll(commands: readonly ControlCommand[]): Promise<void> {
    const { control } = this.#options;
    await forEachLimit(commands, MAX_PROPOSALS, async (command) => {
      await propose(control, command);
    });
  }

  /**
   * Lowers one worker's offer before another of the machine gets the amount. Returns whether any
   * was lowered.
   */
  async #lowerOffers(
    live: readonly NodeView[],
    shares: ReadonlyMap<string, MachineShare>,
  ): Promise<boolean> {
    const { control } = this.#options;
    const commands: ControlCommand[] = [];
    for (const view of live) {
      const share = shares.get(view.id);
      const offer = control.state.nodes.get(view.id)?.offer;
      if (!share || !offer) continue;
      const known = nodeScalars(offer);
      const lowered = least(share, known);
      if (SCALARS.every((amount) => lowered[amount] === known[amount])) continue;
      commands.push(...this.#changesOf(view, lowered));
    }
    await this.#proposeAll(commands);
    return commands.length > 0;
  }

  #changesOf(view: NodeView, share: MachineShare | undefined): ControlCommand[] {
    const { control, clock } = this.#options;
    const atMs = clock.wallMs();
    const known = control.state.nodes.get(view.id);
    const offer = share
      ? nodeOfferOf(view, share, versionOf(control.state))
      : known && closedOffer(view, known.offer);
    if (!offer) return [];
    const isFresh = this.#liveness.of(view.id, view) < this.#options.nodeLostMs;
    const commands: ControlCommand[] = [];
    const differs = !known || this.#textOf(known.offer) !== JSON.stringify(offer);
    if (isFresh && (differs || known?.state === "lost")) {
      commands.push({ type: "node.join", atMs, offer });
    }
    // A replica that the scheduler placed holds its devices by its place, from before it is loaded.
    const serving = servingHoldsOf(view).filter(({ deployment: key }) => {
      const deployment = deploymentOf(key);
      return !control.state.replicas.has(replicaKey({ deployment, nodeId: view.id }));
    });
    if (JSON.stringify(serving) !== JSON.stringify(known?.serving ?? [])) {
      commands.push({ type: "node.update", atMs, nodeId: view.id, serving });
    }
    const asOf = { incarnation: view.incarnation, reading: view.deviceReadings };
    if (known && isStaleReading(known, asOf)) return commands;
    for (const { index: device, fault } of view.gpus) {
      const isQuarantined = known?.quarantined.some((entry) => entry.device === device) ?? false;
      // A quarantined device stays so until an operator resumes the node.
      if (fault !== "" && !isQuarantined) {
        const quarantine = { nodeId: view.id, device, why: fault, asOf };
        commands.push({ type: "node.quarantine", atMs, ...quarantine });
      }
    }
    return commands;
  }

  #textOf(offer: NodeOffer): string {
    const text = this.#texts.get(offer) ?? JSON.stringify(offer);
    this.#texts.set(offer, text);
    return text;
  }

  /** Replicas that failed permanently, whose places are of no use to them. */
  #failedReplicas(attached: ReadonlyMap<string, NodeView>): ControlCommand[] {
    const { control, clock } = this.#options;
    const atMs = clock.wallMs();
    const commands: ControlCommand[] = [];
    for (const place of control.state.replicas.values()) {
      const { deployment, nodeId, grantedAtMs, failure, stage } = place;
      const { replicas = [], lastSeenMs = 0 } = attached.get(nodeId) ?? {};
      // One of several stages is tried again, or another worker gets it.
      if (failure || stage || lastSeenMs - grantedAtMs < FAILURE_SETTLES_MS) continue;
      const replica = replicas.find((each) => each.deployment === deployment);
      // A cancelled load is no failure of the replica.
      const code = replica?.failureCode === "cancelled" ? undefined : replica?.failureCode;
      if (replica?.phase !== "failed" || code === undefined || ERROR_TABLE[code].retryable)
        continue;
      const { message } = replica;
      commands.push({ type: "replica.fail", atMs, deployment, nodeId, code, message });
    }
    return commands;
  }

  /** Replicas that serve since the last check, for which others may be waiting to leave. */
  #readyReplicas(attached: ReadonlyMap<string, NodeView>): ControlCommand[] {
    const { control, clock } = this.#options;
    const atMs = clock.wallMs();
    const commands: ControlCommand[] = [];
    for (const { deployment, nodeId, failure, readyAtMs } of control.state.replicas.values()) {
      if (failure || readyAtMs !== undefined) continue;
      const replicas = attached.get(nodeId)?.replicas ?? [];
      if (!replicas.some((each) => each.deployment === deployment && each.phase === "ready"))
        continue;
      commands.push({ type: "replica.ready", atMs, deployment, nodeId });
    }
    return commands;
  }

  /** Places of unwanted replicas that their nodes no longer run. */
  #goneReplicas(attached: ReadonlyMap<string, NodeView>): ControlCommand[] {
    const { state } = this.#options.control;
    const wanted = wantedReplicas(state);
    const atMs = this.#options.clock.wallMs();
    const commands: ControlCommand[] = [];
    for (const { deployment, nodeId, failure } of state.replicas.values()) {
      if (failure) continue;
      const view = attached.get(nodeId);
      // A node reports its replicas with its first heartbeat.
      if (!view || view.lastSeenMs <= view.attachedAtMs) continue;
      const runs = view.replicas.some((replica) => deploymentOf(replica.deployment) === deployment);
      if (runs || wanted.get(deployment)?.has(nodeId)) continue;
      commands.push({ type: "replica.release", atMs, deployment, nodeId });
    }
    return commands;
  }

  /**
   * The nodes that are lost now. If more than half of all are silent, the network or this master is
   * at fault, and none is lost until its lease expires. Nodes do not fall silent or return at one
   * moment. So silence counts long before a node is lost, and stragglers get the same time to
   * return.
   */
  #lostNodes(attached: ReadonlyMap<string, NodeView>): string[] {
    const { control, clock, log, nodeLostMs, leaseMs } = this.#options;
    const watched = [...control.state.nodes.values()].filter(({ state }) => state !== "lost");
    const silences = watched.map((node) => ({
      id: node.offer.id,
      ms: this.#liveness.of(node.offer.id, attached.get(node.offer.id)),
    }));
    this.#liveness.keepOnly(new Set(watched.map(({ offer }) => offer.id)));
    const silent = silences.filter(({ ms }) => ms >= nodeLostMs);
    const quiet = silences.filter(({ ms }) => ms >= nodeLostMs * QUIET_SHARE);
    const nowMs = clock.monotonicMs();
    const areMostQuiet = quiet.length * 2 > watched.length;
    if (areMostQuiet) this.#mostQuietAtMs = nowMs;
    if (nowMs - this.#mostQuietAtMs >= nodeLostMs) return silent.map(({ id }) => id);
    const over = silent.filter(({ ms }) => ms >= leaseMs);
    if (areMostQuiet && over.length === 0 && silent.length > 0) {
      log.warn(
        { silent: silent.length, nodes: watched.length },
        "most nodes are silent: the network or this master is taken to be at fault",
      );
    }
    return over.map(({ id }) => id);
  }

  async #lose(nodeIds: readonly string[]): Promise<void> {
    const { control, clock, log, leaseMs } = this.#options;
    const atMs = clock.wallMs();
    log.warn({ nodes: nodeIds }, "nodes are lost");
    const fencedAtMs = atMs + leaseMs + FENCE_MARGIN_MS;
    await propose(control, { type: "node.lost", atMs, nodeIds, fencedAtMs });
  }

  async #fence(): Promise<void> {
    const { control, clock } = this.#options;
    const losses = this.#leases.over(control.state.nodes.values());
    if (losses.length === 0) return;
    await propose(control, { type: "node.fenced", atMs: clock.wallMs(), losses });
  }
}

/** The smaller value of each amount. */
function least(share: MachineShare, known: NodeScalars): MachineShare {
  const amounts = SCALARS.map((amount) => [amount, Math.min(share[amount], known[amount])]);
  return { ...share, ...Object.fromEntries(amounts) };
}
