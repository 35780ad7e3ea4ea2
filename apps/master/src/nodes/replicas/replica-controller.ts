import { Backoff } from "@heddle/base/backoff";
import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type { Random } from "@heddle/base/random";
import type { DeploymentSpec } from "@heddle/contracts/engine";
import { type ReplicaRecord, replicaKey } from "@heddle/control/jobs/records/records";
import { wantedReplicas } from "@heddle/control/jobs/scheduling/replica-claims";
import type { NodeLog } from "@heddle/rpc/node/log";
import { isActiveLeader } from "../../control-plane/active-leader.ts";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import type { AttachedNode } from "../attached-node.ts";
import { leaving } from "../leaving.ts";
import { type LoadBlocker, loadBlocker } from "../machine-offers.ts";
import type { NodeRegistry } from "../node-registry.ts";
import { type PlacementAction, type PlacementWorker, planPlacement } from "./placement-plan.ts";

const retry = { baseMs: 1_000, maxMs: 60_000 };
/** What was done in a process is remembered so long after it was last attached: it may come again. */
const rememberedMs = 600_000;
/** Without a leader for so long a majority of the masters is gone; an election takes a few seconds. */
const leaderlessMs = 10_000;

/** What placement needs to know of the nodes. */
type PlacedNodes = Pick<NodeRegistry, "workers" | "nodes" | "incarnations" | "onChange">;

/** What this master last did about one deployment in one process of a worker. */
interface Attempt {
  readonly backoff: Backoff;
  /** Nothing is done before this time: the last command failed, or the replica did. */
  notBeforeMs: number;
  /** The rest after the replica's last failure has begun: it counts from there, not from the load. */
  isResting: boolean;
  /** Rests that have begun since it was ready, or since another specification was sent. */
  failures: number;
  /** When the process was last attached. */
  seenAtMs: number;
  /** Nothing is done before the worker has reported so often: its reports lag the command. */
  notBeforeHeartbeat: number;
  /** The specification that was sent last. */
  sent: DeploymentSpec | undefined;
}

/** A deployment's specification for one place, and what it was made of. */
interface PlacedSpec {
  readonly of: DeploymentSpec;
  readonly spec: DeploymentSpec;
}

/**
 * Makes the workers run what the replicated state asks for: on every report and every applied
 * command the wanted is held against the reported, and what differs is commanded. It keeps no state
 * that matters: a new leader comes to the same commands, and they are idempotent.
 *
 * The leader alone commands. Another master may not have applied yet what the leader has had loaded,
 * which to it nobody asks for; one that was away for a day knows nothing of what was deployed since.
 * Where a majority of the masters is gone nothing is decided any more: then each that is left has workers
 * load what they lack, once a process, and takes nothing away.
 */
export class ReplicaController {
  readonly #registry: PlacedNodes;
  readonly #control: ControlPlane;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #log: NodeLog;
  readonly #unsubscribes: readonly (() => void)[];
  /** By incarnation and deployment. */
  readonly #attempts = new Map<string, Attempt>();
  /** By deployment that the scheduler places, then worker: the places that it gave. */
  #places: ReturnType<typeof wantedReplicas> = new Map();
  /** By the devices of a place: the same object for the same place, so that a change of it shows. */
  readonly #placedSpecs = new WeakMap<ReplicaRecord["devices"], PlacedSpec>();
  /** Since when no leader is known; undefined where one is. */
  #leaderlessFromMs: number | undefined;
  #queued = false;
  #closed = false;

  constructor(
    registry: PlacedNodes,
    control: ControlPlane,
    options: { readonly clock: Clock; readonly random: Random; readonly log: NodeLog },
  ) {
    this.#registry = registry;
    this.#control = control;
    this.#clock = options.clock;
    this.#random = options.random;
    this.#log = options.log;
    this.#unsubscribes = [
      registry.onChange((change) => {
        if (change === "nodes") this.#queue();
      }),
      control.onApplied(() => this.#queue()),
    ];
  }

  close(): void {
    this.#closed = true;
    for (const unsubscribe of this.#unsubscribes) unsubscribe();
  }

  #queue(): void {
    if (this.#queued) return;
    this.#queued = true;
    setImmediate(() => {
      this.#queued = false;
      if (!this.#closed) this.#reconcile();
    });
  }

  #reconcile(): void {
    const isLeader = isActiveLeader(this.#control);
    const isLeaderless = this.#isLeaderless();
    if (!isLeader && !isLeaderless) return;
    const { deployments } = this.#control.state;
    this.#places = wantedReplicas(this.#control.state);
    // A worker that has not reported yet might run anything.
    const workers = this.#registry.workers().filter(({ heartbeats }) => heartbeats > 0);
    this.#forgetGone();
    let blocker: LoadBlocker | undefined;
    const hasRoom = (nodeId: string, deployment: string) => {
      blocker ??= loadBlocker(this.#registry.nodes(), this.#control);
      return blocker(nodeId, deployment) === undefined;
    };
    const plan = planPlacement(
      deployments,
      workers.map((worker) => this.#view(worker, hasRoom)),
      this.#places,
    );
    const byId = new Map(workers.map((worker) => [worker.id, worker]));
    for (const action of isLeader ? [...plan, ...this.#changedSpecs(workers)] : plan) {
      const worker = byId.get(action.worker);
      if (!worker || this.#servesUntold(worker, action)) continue;
      if (this.#finishesCalls(worker, action)) continue;
      if (isLeader || this.#isFirstLoad(worker, action)) this.#command(worker, action);
    }
  }

  /** Whether no leader has been known here for long. */
  #isLeaderless(): boolean {
    const { group, fault } = this.#control;
    const nowMs = this.#clock.monotonicMs();
    if (fault || group?.status().leader !== undefined) this.#leaderlessFromMs = undefined;
    else this.#leaderlessFromMs ??= nowMs;
    return this.#leaderlessFromMs !== undefined && nowMs - this.#leaderlessFromMs >= leaderlessMs;
  }

  /** Whether this master has not had the process load the deployment yet. */
  #isFirstLoad(worker: AttachedNode, { type, deployment }: PlacementAction): boolean {
    return type === "load" && !this.#attempts.get(attemptKey(worker, deployment))?.sent;
  }

  #view(
    worker: AttachedNode,
    hasRoom: (nodeId: string, deployment: string) => boolean,
  ): PlacementWorker {
    return {
      id: worker.id,
      hasRoom: (deployment) => hasRoom(worker.id, deployment),
      leaving: leaving(this.#control.state, worker.id),
      memoryBytes: worker.register.hardware?.memoryBytes ?? 0,
      replicas: worker.replicas.map(({ deployment, phase }) => {
        const failures = this.#attempts.get(attemptKey(worker, deployment))?.failures;
        return { deployment, phase, failures };
      }),
    };
  }

  /**
   * True for a replica that serves, of which the replicated state has yet to hear: whether it is to go
   * before another is up is decided when it has.
   */
  #servesUntold(worker: AttachedNode, { type, deployment }: PlacementAction): boolean {
    if (type !== "unload" || worker.replica(deployment)?.phase !== "ready") return false;
    const key = replicaKey({ deployment, nodeId: worker.id });
    const place = this.#control.state.replicas.get(key);
    return place !== undefined && !place.failure && !place.evicted && !place.readyAtMs;
  }

  /** True for a replica that is to leave a drained worker and has calls, until the drain's time is over. */
  #finishesCalls(worker: AttachedNode, { type, deployment }: PlacementAction): boolean {
    const { state } = this.#control;
    if (type !== "unload" || !state.deployments.has(deployment)) return false;
    if (!leaving(state, worker.id)) return false;
    const byMs = state.nodes.get(worker.id)?.drainByMs;
    if (byMs === undefined || this.#clock.wallMs() >= byMs) return false;
    const replica = worker.replica(deployment);
    if (!replica) return false;
    return replica.load.running + replica.load.waiting + worker.openCalls(replica) > 0;
  }

  /** Replicas whose deployment's specification is not the one that was sent to them last. */
  #changedSpecs(workers: readonly AttachedNode[]): PlacementAction[] {
    const actions: PlacementAction[] = [];
    for (const worker of workers) {
      for (const { deployment, phase } of worker.replicas) {
        const spec = this.#specFor(worker, deployment);
        const attempt = this.#attempts.get(attemptKey(worker, deployment));
        if (attempt && phase === "ready") {
          attempt.backoff.reset();
          attempt.failures = 0;
        }
        if (attempt && phase !== "failed") attempt.isResting = false;
        if (!spec || phase === "failed" || phase === "unloading") continue;
        if (attempt?.sent !== spec) actions.push({ type: "load", worker: worker.id, deployment });
      }
    }
    return actions;
  }

  #command(worker: AttachedNode, action: PlacementAction): void {
    const attempt = this.#attempt(attemptKey(worker, action.deployment));
    const nowMs = this.#clock.monotonicMs();
    if (nowMs < attempt.notBeforeMs || worker.heartbeats < attempt.notBeforeHeartbeat) return;
    const spec = this.#specFor(worker, action.deployment);
    if (action.type === "load") {
      const hasFailed = worker.replica(action.deployment)?.phase === "failed";
      const isChanged = attempt.sent !== undefined && attempt.sent !== spec;
      if (hasFailed && !isChanged && this.#rest(attempt, nowMs)) return;
      if (isChanged) attempt.failures = 0;
      attempt.sent = spec;
      attempt.isResting = false;
    }
    attempt.notBeforeHeartbeat = worker.heartbeats + 2;
    void this.#send(worker, action, spec);
  }

  /** Begins the rest after a failure, each time a longer one; false where it is over. */
  #rest(attempt: Attempt, nowMs: number): boolean {
    if (attempt.isResting) return false;
    attempt.isResting = true;
    attempt.failures += 1;
    attempt.notBeforeMs = nowMs + attempt.backoff.nextMs();
    return true;
  }

  /** What the worker is to run: with the device that the scheduler gave, where it gave one. */
  #specFor({ id }: AttachedNode, deployment: string): DeploymentSpec | undefined {
    const record = this.#control.state.deployments.get(deployment);
    const places = this.#places.get(deployment);
    if (!record || !places) return record?.spec;
    const place = places.get(id);
    if (!place) return undefined;
    const known = this.#placedSpecs.get(place.devices);
    if (known?.of === record.spec) return known.spec;
    const options = { ...record.spec.options, device: String(place.devices[0]) };
    const spec = { ...record.spec, options };
    this.#placedSpecs.set(place.devices, { of: record.spec, spec });
    return spec;
  }

  async #send(
    worker: AttachedNode,
    action: PlacementAction,
    spec: DeploymentSpec | undefined,
  ): Promise<void> {
    const { type, deployment } = action;
    this.#log.info({ node: worker.id, action: type, deployment }, "placement");
    try {
      if (type === "unload") await worker.link?.unload(deployment);
      else if (spec) await worker.link?.load(spec);
    } catch (error) {
      const attempt = this.#attempt(attemptKey(worker, deployment));
      attempt.sent = undefined;
      attempt.notBeforeMs = this.#clock.monotonicMs() + attempt.backoff.nextMs();
      const { code, message } = toAppError(error);
      const fields = { node: worker.id, action: type, deployment, code, error: message };
      this.#log.warn(fields, "a worker refused a placement, retrying");
    }
  }

  #attempt(key: string): Attempt {
    let attempt = this.#attempts.get(key);
    if (!attempt) {
      const backoff = new Backoff(retry, this.#random);
      attempt = {
        ...{ backoff, notBeforeMs: 0, notBeforeHeartbeat: 0, isResting: false, failures: 0 },
        ...{ seenAtMs: this.#clock.monotonicMs(), sent: undefined },
      };
      this.#attempts.set(key, attempt);
    }
    return attempt;
  }

  /** One that is silent, or was attached a while ago, keeps its rests. */
  #forgetGone(): void {
    const nowMs = this.#clock.monotonicMs();
    const attached = new Set(this.#registry.incarnations());
    for (const [key, attempt] of this.#attempts) {
      if (attached.has(key.slice(0, key.indexOf("/")))) attempt.seenAtMs = nowMs;
      else if (nowMs - attempt.seenAtMs > rememberedMs) this.#attempts.delete(key);
    }
  }
}

function attemptKey(worker: AttachedNode, deployment: string): string {
  return `${worker.register.incarnation}/${deployment}`;
}
