import { isDeepStrictEqual } from "node:util";
import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type { DeploymentSpec } from "@heddle/contracts/engine";
import { MAX_CLAIM_NODES } from "@heddle/control/jobs/commands/stage-places";
import { replicaKey, type StageClaimRecord } from "@heddle/control/jobs/records/records";
import { deploymentOf } from "@heddle/control/jobs/scheduling/divided-models";
import {
  dividesGpus,
  stageClaim,
  stageDevices,
} from "@heddle/control/jobs/scheduling/replica-claims";
import { schedulerSettings } from "@heddle/control/jobs/scheduling/scheduling-input";
import type { Log } from "@heddle/observability/logger";
import type { TaskRequest } from "@heddle/scheduler/model";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import { deviceOf } from "../hosts.ts";
import type { NodeView } from "../node-directory.ts";
import type { StagePlaces } from "./placed-specs.ts";
import type { StageCandidate, StagedReplica } from "./staged-replica.ts";

/** How long a change that was refused waits: what refuses it, as a quota, remains for a while. */
const RETRY_MS = 5_000;

interface StageDevicesOptions {
  readonly control: ControlPlane;
  readonly clock: Clock;
  readonly log: Log;
  /** All nodes that are attached. */
  readonly nodes: () => readonly NodeView[];
}

/** A specification with the devices of its place. */
interface OnDevices {
  readonly devices: readonly number[];
  readonly spec: DeploymentSpec;
}

/** The GPUs of a request in words. */
export function gpusText({ gpus, gpuIndex, gpuTypes, gpuMemoryGb }: TaskRequest): string {
  if (gpuIndex !== undefined) return `the GPU ${gpuIndex}`;
  const kind = gpuTypes.length > 0 ? ` (${gpuTypes.join(" or ")})` : "";
  const size = gpuMemoryGb > 0 ? ` of at least ${gpuMemoryGb} GB` : "";
  return `${gpus} GPU${gpus === 1 ? "" : "s"}${kind}${size}`;
}

/** Where stages are to be, and of which deployments more is to be done. */
export interface FollowedStages {
  readonly places: StagePlaces;
  /** Deployments whose stages on GPUs are as planned, on the leader. */
  readonly settled: ReadonlySet<string>;
  /** Deployments whose GPUs without a stage are kept for a worker that may come back. */
  readonly keeping: ReadonlySet<string>;
  /** Deployments with fewer replicas than wanted. */
  readonly lacking: ReadonlySet<string>;
}

/**
 * The GPUs of stages: those of a node belong to a deployment, whichever of its stages run there. The
 * replicated state holds them, all of a replica's or none, as it holds those of whole replicas.
 */
export class StageDevices {
  readonly #options: StageDevicesOptions;
  /** Changes that are proposed now: by deployment, or by place where it is released. */
  readonly #underWay = new Set<string>();
  /** When those that failed may be tried again. */
  readonly #notBeforeMs = new Map<string, number>();
  readonly #specs = new WeakMap<DeploymentSpec, OnDevices>();

  constructor(options: StageDevicesOptions) {
    this.#options = options;
  }

  /** Whether the stages of a deployment run on GPUs. */
  serves(deployment: string): boolean {
    return dividesGpus(this.#options.control.state, deployment);
  }

  /** The deployments of which this is so. */
  all(): ReadonlySet<string> {
    const keys = this.#options.control.state.deployments.keys();
    return new Set([...keys].filter((key) => this.serves(key)));
  }

  /** The nodes on which the deployment holds GPUs. */
  held(deployment: string): ReadonlySet<string> {
    const places = [...this.#options.control.state.replicas.values()];
    return new Set(
      places.filter((place) => place.deployment === deployment).map(({ nodeId }) => nodeId),
    );
  }

  /**
   * The memory of the GPUs that each worker has for a stage, now or if others freed theirs. Workers that
   * report the same one share it.
   */
  memory(when: "now" | "freed" = "now"): (nodeId: string, deployment: string) => number {
    const { control, nodes } = this.#options;
    const views = new Map(nodes().map((view) => [view.id, view]));
    const reports = [...views.values()].flatMap((view) =>
      view.gpus.map((gpu) => deviceOf(view, gpu)),
    );
    const sharers = Map.groupBy(reports, (id) => id);
    const finders = new Map<string, ReturnType<typeof stageDevices>>();
    return (nodeId, deployment) => {
      const find =
        finders.get(deployment) ?? stageDevices(control.state, control.jobs, deployment, when);
      finders.set(deployment, find);
      const view = views.get(nodeId);
      const devices = find(nodeId);
      const gpus = view?.gpus.filter(({ index }) => devices.includes(index)) ?? [];
      const sizes = gpus.map((gpu) =>
        Math.floor(gpu.memoryBytes / sharers.get(deviceOf(view!, gpu))!.length),
      );
      return sizes.reduce((sum, bytes) => sum + bytes, 0);
    };
  }

  /** The specification of a stage with the devices of its place; undefined where it has none yet. */
  specOn(spec: DeploymentSpec, nodeId: string): DeploymentSpec | undefined {
    const { state } = this.#options.control;
    const deployment = deploymentOf(spec.key);
    if (!dividesGpus(state, deployment)) return spec;
    const place = state.replicas.get(replicaKey({ deployment, nodeId }));
    if (!place) return undefined;
    const known = this.#specs.get(spec);
    if (known?.devices === place.devices) return known.spec;
    const on = { ...spec, options: { ...spec.options, device: place.devices.join(",") } };
    this.#specs.set(spec, { devices: place.devices, spec: on });
    return on;
  }

  /** The GPUs of each stage in words; empty where it has none. */
  need(deployment: string): string {
    const claim = stageClaim(this.#options.control.state, deployment, 1);
    return claim ? gpusText(claim.request) : "";
  }

  /**
   * Whether a planned replica has its GPUs. Stages that lack theirs queue for them, as a whole replica
   * does, on their nodes or on others of these that have the memory.
   */
  async secure({ of: { key }, parts }: StagedReplica, able: readonly StageCandidate[]) {
    if (!this.serves(key)) return true;
    const held = this.held(key);
    const lacking = parts.filter(({ node }) => !held.has(node));
    if (lacking.length === 0) return true;
    const memoryBytes = Math.max(...lacking.map((part) => part.memoryBytes));
    const own = new Set(lacking.map(({ node }) => node));
    const others = able.filter(
      ({ node: { id }, memoryBytes: has }) =>
        !own.has(id) && !held.has(id) && (has(key) ?? 0) >= memoryBytes,
    );
    const nodes = [...own, ...others.map(({ node }) => node.id)].slice(0, MAX_CLAIM_NODES);
    await this.#claim(key, { stages: own.size, memoryBytes, nodes });
    return false;
  }

  async #claim(deployment: string, claim: StageClaimRecord | undefined): Promise<void> {
    const { control, clock } = this.#options;
    if (isDeepStrictEqual(control.state.stageClaims.get(deployment), claim)) return;
    await propose(control, { type: "replica.claim", atMs: clock.wallMs(), deployment, claim });
  }

  /** Holds what a deployment's stages lack on these nodes. Rejects where they cannot all have it. */
  async reserve(deployment: string, nodeIds: readonly string[]): Promise<void> {
    const { control, clock } = this.#options;
    if (!dividesGpus(control.state, deployment)) return;
    const lacking = nodeIds.filter((nodeId) => !this.#isHeld(deployment, nodeId));
    const find = stageDevices(control.state, control.jobs, deployment);
    const places = lacking.map((nodeId) => ({ nodeId, devices: find(nodeId) }));
    if (places.length === 0) return;
    const { jobTimeoutMs, maxConcurrentJobs } = schedulerSettings(control.state);
    const limits = { jobTimeoutMs, maxConcurrentJobs };
    await propose(control, {
      type: "replica.place",
      atMs: clock.wallMs(),
      deployment,
      places,
      limits,
    });
  }

  /**
   * Holds devices for stages that have moved, of deployments whose places are as planned. Releases those
   * that no stage has any more, unless the deployment keeps them, and claims of those that lack none.
   */
  follow({ places, settled, keeping, lacking }: FollowedStages): void {
    if (settled.size === 0) return;
    const { control, clock, nodes } = this.#options;
    const wanted = new Map<string, Set<string>>();
    for (const [key, own] of places) {
      const known = wanted.get(deploymentOf(key)) ?? [];
      wanted.set(deploymentOf(key), new Set([...known, ...own.keys()]));
    }
    const memory = this.memory();
    for (const deployment of settled) {
      if (!lacking.has(deployment) && control.state.stageClaims.has(deployment)) {
        this.#run(`${deployment} waits`, () => this.#claim(deployment, undefined));
      }
      const used = [...(wanted.get(deployment) ?? [])];
      const able = used.filter((nodeId) => memory(nodeId, deployment) > 0);
      if (able.some((nodeId) => !this.#isHeld(deployment, nodeId))) {
        this.#run(deployment, () => this.reserve(deployment, able));
      }
    }
    const views = new Map(nodes().map((view) => [view.id, view]));
    for (const { deployment, nodeId } of control.state.replicas.values()) {
      if (!settled.has(deployment) || keeping.has(deployment)) continue;
      if (wanted.get(deployment)?.has(nodeId)) continue;
      const view = views.get(nodeId);
      // A node reports its replicas with its first heartbeat.
      if (!view || view.lastSeenMs <= view.attachedAtMs) continue;
      if (view.replicas.some((each) => deploymentOf(each.deployment) === deployment)) continue;
      const release = {
        type: "replica.release",
        atMs: clock.wallMs(),
        deployment,
        nodeId,
      } as const;
      this.#run(replicaKey(release), async () => {
        // Else its other stages would get GPUs without this one's.
        await this.#claim(deployment, undefined);
        await propose(control, release);
      });
    }
  }

  #isHeld(deployment: string, nodeId: string): boolean {
    return this.#options.control.state.replicas.has(replicaKey({ deployment, nodeId }));
  }

  /** Once at a time; what fails is tried again a while later, with a report of a node. */
  #run(key: string, change: () => Promise<void>): void {
    const nowMs = this.#options.clock.monotonicMs();
    if (this.#underWay.has(key) || nowMs < (this.#notBeforeMs.get(key) ?? 0)) return;
    this.#underWay.add(key);
    const onFailure = (error: unknown) => {
      for (const [known, untilMs] of this.#notBeforeMs) {
        if (untilMs <= nowMs) this.#notBeforeMs.delete(known);
      }
      this.#notBeforeMs.set(key, nowMs + RETRY_MS);
      const { code, message } = toAppError(error);
      this.#options.log.warn({ for: key, code, error: message }, "GPUs of stages did not change");
    };
    void change()
      .catch(onFailure)
      .finally(() => this.#underWay.delete(key));
  }
}
