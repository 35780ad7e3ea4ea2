import { PacedRun } from "@heddle/base/async/paced-run";
import { Backoff } from "@heddle/base/backoff";
import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type { Random } from "@heddle/base/random";
import type { DeploymentSpec } from "@heddle/contracts/engine";
import { type ReplicaRecord, replicaKey } from "@heddle/control/jobs/records/records";
import { deploymentOf } from "@heddle/control/jobs/scheduling/divided-models";
import { wantedReplicas } from "@heddle/control/jobs/scheduling/replica-claims";
import type { Log } from "@heddle/observability/logger";
import { isActiveLeader } from "../../control-plane/active-leader.ts";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import type { AttachedNode } from "../attached-node.ts";
import { leaving } from "../leaving.ts";
import { type LoadBlocker, loadBlocker, modelMemory } from "../machine-offers.ts";
import type { NodeRegistry } from "../node-registry.ts";
import { type PlacementAction, type PlacementWorker, planPlacement } from "./placement-plan.ts";
import { StageDevices } from "./stage-devices.ts";
import type { StageCandidate } from "./staged-replica.ts";
import { type StagedPlacement, StagedReplicas } from "./staged-replicas.ts";

const retry = { baseMs: 1_000, maxMs: 60_000 };
/** Within this time figures of replicas, and commands that place nothing, are handled. */
const POLL_MS = 250;
/** Commands of the flow of jobs and calls, which change no placement. */
const PLACE_NOTHING: ReadonlySet<string> = new Set([
  "job.submit",
  "jobs.progress",
  "tasks.report",
  "key.create",
  "key.revoke",
]);
/** How long the attempts in a process are kept after it detached, since it may return. */
const REMEMBERED_MS = 600_000;
/** How long the calls of a replica that goes for lack of load may take. */
const SCALING_GRACE_MS = 600_000;
/** After this long without a leader a majority of the masters is gone; elections take seconds. */
const LEADERLESS_MS = 10_000;
/** Workers that are named to one that needs parts of weights. */
const MAX_HOLDERS = 16;

/** What placement needs of the nodes. */
type PlacedNodes = Pick<NodeRegistry, "workers" | "nodes" | "incarnations" | "onChange"> & {
  readonly divisions: Pick<NodeRegistry["divisions"], "set">;
};

/** This master's last action for one deployment in one process of a worker. */
interface Attempt {
  readonly backoff: Backoff;
  /** Backoff: no action before this time, after a failed command or replica. */
  notBeforeMs: number;
  /** Whether the backoff for the replica's last failure has started; it counts from the failure. */
  isResting: boolean;
  /** Failures since it was ready, or since another specification was sent. */
  failures: number;
  /** When the process was last attached. */
  seenAtMs: number;
  /** No action before this heartbeat: reports lag behind commands. */
  notBeforeHeartbeat: number;
  /** The specification that was sent last. */
  sent: DeploymentSpec | undefined;
}

/** A deployment's specification for one place, and the deployment that it was derived from. */
interface PlacedSpec {
  readonly of: DeploymentSpec;
  readonly spec: DeploymentSpec;
}

/**
 * Reconciles the workers with the replicated state: compares desired and reported replicas and
 * commands the difference. It does so at once after changes of nodes, replicas and deployments, and
 * soon after other reports and commands.
 * - It keeps no state that matters: a new leader derives the same, idempotent commands.
 * - Only the leader commands, because another master may lag behind and would unload what is new.
 * - Without a majority of the masters no state changes: each remaining master loads what its
 *   workers lack, once per process, and unloads nothing.
 */
export class ReplicaController {
  readonly #registry: PlacedNodes;
  readonly #control: ControlPlane;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #log: Log;
  readonly #unsubscribes: readonly (() => void)[];
  /** Keyed by incarnation and deployment. */
  readonly #attempts = new Map<string, Attempt>();
  /** Keyed by scheduled deployment, then worker: the places. */
  #places: ReturnType<typeof wantedReplicas> = new Map();
  readonly #staged: StagedReplicas;
  readonly #stageDevices: StageDevices;
  #divided: StagedPlacement = {
    places: new Map(),
    whole: new Map(),
    settled: new Set(),
    keeping: new Set(),
    lacking: new Set(),
  };
  /** Keyed by the devices of a place: the same object for the same place, so that a change is visible. */
  readonly #placedSpecs = new WeakMap<ReplicaRecord["devices"], PlacedSpec>();
  /** Since when no leader is known; undefined if one is. */
  #leaderlessFromMs: number | undefined;
  readonly #nextRun: PacedRun;

  constructor(
    registry: PlacedNodes,
    control: ControlPlane,
    options: { readonly clock: Clock; readonly random: Random; readonly log: Log },
  ) {
    this.#registry = registry;
    this.#control = control;
    this.#clock = options.clock;
    this.#random = options.random;
    this.#log = options.log;
    this.#nextRun = new PacedRun(() => this.#reconcile(), options.clock);
    this.#stageDevices = new StageDevices({ ...options, control, nodes: () => registry.nodes() });
    this.#staged = new StagedReplicas({
      ...options,
      onChange: () => this.#nextRun.request(),
      devices: this.#stageDevices,
    });
    this.#unsubscribes = [
      registry.onChange((change) => {
        if (change === "nodes") this.#nextRun.request();
        else if (change === "figures") this.#nextRun.request(POLL_MS);
      }),
      control.onApplied((command) => {
        this.#nextRun.request(command && PLACE_NOTHING.has(command.type) ? POLL_MS : 0);
      }),
    ];
  }

  close(): void {
    this.#nextRun.close();
    this.#staged.close();
    for (const unsubscribe of this.#unsubscribes) unsubscribe();
  }

  #reconcile(): void {
    const isLeader = isActiveLeader(this.#control);
    const isLeaderless = this.#isLeaderless();
    if (!isLeader) this.#staged.clear();
    if (!isLeader && !isLeaderless) return;
    const { deployments } = this.#control.state;
    // The scheduler finds whole replicas their GPUs.
    const onGpus = this.#stageDevices.all();
    this.#places = new Map(
      [...wantedReplicas(this.#control.state)].filter(([key]) => !onGpus.has(key)),
    );
    // A worker that has not reported yet might run anything.
    const workers = this.#registry.workers().filter(({ hasReported }) => hasReported);
    const divisible = new Map([...deployments].filter(([key]) => !this.#places.has(key)));
    this.#divided = this.#staged.places(divisible, this.#candidates(workers, onGpus), isLeader);
    if (isLeader) this.#stageDevices.follow(this.#divided);
    const notes = this.#staged.notes();
    if (isLeader) this.#registry.divisions.set(notes);
    this.#forgetGone();
    let blocker: LoadBlocker | undefined;
    const hasRoom = (nodeId: string, deployment: string) => {
      const wholeBytes = (key: string) => notes.get(key)?.wholeBytes;
      blocker ??= loadBlocker(this.#registry.nodes(), this.#control, wholeBytes);
      return blocker(nodeId, deployment) === undefined;
    };
    const plan = planPlacement(
      deployments,
      workers.map((worker) => this.#view(worker, hasRoom)),
      {
        places: new Map<string, ReadonlyMap<string, unknown>>([
          ...this.#places,
          ...this.#divided.places,
        ]),
        whole: this.#divided.whole,
      },
    );
    const byId = new Map(workers.map((worker) => [worker.id, worker]));
    for (const action of isLeader ? [...plan, ...this.#changedSpecs(workers)] : plan) {
      const worker = byId.get(action.worker);
      if (!worker || this.#servesUnrecorded(worker, action)) continue;
      if (this.#finishesCalls(worker, action)) continue;
      if (action.type === "load" && !this.#specFor(worker, action.deployment)) continue;
      if (isLeader || this.#isFirstLoad(worker, action)) this.#command(worker, action);
    }
  }

  #candidates(workers: readonly AttachedNode[], onGpus: ReadonlySet<string>): StageCandidate[] {
    let memory: ReturnType<typeof modelMemory> | undefined;
    let gpuMemory: ReturnType<StageDevices["memory"]> | undefined;
    return workers.map((node) => ({
      node,
      memoryBytes: (deployment) => {
        if (onGpus.has(deployment)) {
          gpuMemory ??= this.#stageDevices.memory();
          return gpuMemory(node.id, deployment);
        }
        memory ??= modelMemory(this.#registry.nodes(), this.#control);
        return memory(node.id, (key) => deploymentOf(key) === deployment);
      },
      leaving: leaving(this.#control.state, node.id),
    }));
  }

  /** Whether no leader has been known here for long. */
  #isLeaderless(): boolean {
    const { group, fault } = this.#control;
    const nowMs = this.#clock.monotonicMs();
    if (fault || group?.status().leader !== undefined) this.#leaderlessFromMs = undefined;
    else this.#leaderlessFromMs ??= nowMs;
    return this.#leaderlessFromMs !== undefined && nowMs - this.#leaderlessFromMs >= LEADERLESS_MS;
  }

  /** Whether this master has not made the process load the deployment yet. */
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
   * True for a serving replica that the replicated state does not know as ready yet. Whether it
   * must leave before its replacement is up is decided after that.
   */
  #servesUnrecorded(worker: AttachedNode, { type, deployment }: PlacementAction): boolean {
    if (type !== "unload" || worker.replica(deployment)?.phase !== "ready") return false;
    const key = replicaKey({ deployment, nodeId: worker.id });
    const place = this.#control.state.replicas.get(key);
    return place !== undefined && !place.failure && !place.evicted && !place.readyAtMs;
  }

  /** True for a replica with calls on a drained worker, until the drain's deadline. */
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

  /** Replicas whose deployment's specification differs from the one sent last. */
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

  /** Starts the backoff after a failure, longer each time; false once it has ended. */
  #rest(attempt: Attempt, nowMs: number): boolean {
    if (attempt.isResting) return false;
    attempt.isResting = true;
    attempt.failures += 1;
    attempt.notBeforeMs = nowMs + attempt.backoff.nextMs();
    return true;
  }

  /** The specification for the worker, with the device from the scheduler, if any. */
  #specFor({ id }: AttachedNode, deployment: string): DeploymentSpec | undefined {
    const stages = this.#divided.places.get(deployment);
    const stage = stages?.get(id);
    if (stage) return this.#stageDevices.specOn(stage, id);
    if (stages && !this.#divided.whole.get(deployment)?.workers.has(id)) return undefined;
    const record = this.#control.state.deployments.get(deployment);
    const places = this.#places.get(deployment);
    if (!record || !places) return record?.spec;
    const place = places.get(id);
    if (!place) return undefined;
    const known = this.#placedSpecs.get(place.devices);
    if (known?.of === record.spec) return known.spec;
    const options = { ...record.spec.options, device: place.devices.join(",") };
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
      if (type === "unload") await worker.link?.unload(deployment, this.#graceMs(deployment));
      else if (spec) await worker.link?.load(spec, this.#holders(worker, spec));
    } catch (error) {
      const attempt = this.#attempt(attemptKey(worker, deployment));
      attempt.sent = undefined;
      attempt.notBeforeMs = this.#clock.monotonicMs() + attempt.backoff.nextMs();
      const { code, message } = toAppError(error);
      const fields = { node: worker.id, action: type, deployment, code, error: message };
      this.#log.warn(fields, "a worker refused a placement, retrying");
    }
  }

  /** Workers that may have parts of a stage's weights, those with a stage of the model first. */
  #holders({ id }: AttachedNode, spec: DeploymentSpec): string[] {
    if (spec.engine !== "llama" || !spec.stage) return [];
    const key = deploymentOf(spec.key);
    const others = this.#registry.workers().filter((worker) => worker.id !== id);
    const isHolder = ({ replicas }: AttachedNode) =>
      replicas.some(({ deployment }) => deploymentOf(deployment) === key);
    const sorted = others.toSorted((a, b) => Number(isHolder(b)) - Number(isHolder(a)));
    return sorted.slice(0, MAX_HOLDERS).map(({ register }) => register.address);
  }

  /** The calls of a deployment that follows its load may end. */
  #graceMs(deployment: string): number {
    return this.#control.state.deployments.get(deployment)?.scaling ? SCALING_GRACE_MS : 0;
  }

  #attempt(key: string): Attempt {
    let attempt = this.#attempts.get(key);
    if (!attempt) {
      const backoff = new Backoff(retry, this.#random);
      attempt = {
        backoff,
        notBeforeMs: 0,
        notBeforeHeartbeat: 0,
        isResting: false,
        failures: 0,
        seenAtMs: this.#clock.monotonicMs(),
        sent: undefined,
      };
      this.#attempts.set(key, attempt);
    }
    return attempt;
  }

  /** A silent worker, or one that detached recently, keeps its backoff. */
  #forgetGone(): void {
    const nowMs = this.#clock.monotonicMs();
    const attached = new Set(this.#registry.incarnations());
    for (const [key, attempt] of this.#attempts) {
      if (attached.has(key.slice(0, key.indexOf("/")))) attempt.seenAtMs = nowMs;
      else if (nowMs - attempt.seenAtMs > REMEMBERED_MS) this.#attempts.delete(key);
    }
  }
}

function attemptKey(worker: AttachedNode, deployment: string): string {
  return `${worker.register.incarnation}/${deployment}`;
}
