import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type { DeploymentSpec } from "@heddle/contracts/engine";
import type { ControlCommand } from "@heddle/control/command";
import { replicaKey } from "@heddle/control/jobs/records/records";
import { dividesGpus, stageDevices } from "@heddle/control/jobs/scheduling/replica-claims";
import { schedulerSettings } from "@heddle/control/jobs/scheduling/scheduling-input";
import type { Log } from "@heddle/observability/logger";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import { deviceOf } from "../hosts.ts";
import type { NodeView } from "../node-directory.ts";
import type { StagePlaces } from "./placed-specs.ts";
import { deploymentOf } from "./staged-replica.ts";

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

/**
 * The GPUs of stages: those of a node belong to a deployment, whichever of its stages run there. The
 * replicated state holds them, all of a replica's or none, as it holds those of whole replicas.
 */
export class StageDevices {
  readonly #options: StageDevicesOptions;
  /** Changes that are proposed now: by deployment, or by place where it is released. */
  readonly #underWay = new Set<string>();
  readonly #specs = new WeakMap<DeploymentSpec, OnDevices>();

  constructor(options: StageDevicesOptions) {
    this.#options = options;
  }

  /** Whether the stages of a deployment run on GPUs. */
  serves(deployment: string): boolean {
    return dividesGpus(this.#options.control.state, deployment);
  }

  /** The memory of the GPUs that each worker has for a stage; workers that report the same one share it. */
  memory(): (nodeId: string, deployment: string) => number {
    const { control, nodes } = this.#options;
    const views = new Map(nodes().map((view) => [view.id, view]));
    const reports = [...views.values()].flatMap((view) =>
      view.gpus.map((gpu) => deviceOf(view, gpu)),
    );
    const sharers = Map.groupBy(reports, (id) => id);
    return (nodeId, deployment) => {
      const view = views.get(nodeId);
      const devices = stageDevices(control.state, control.jobs, { deployment, nodeId }) ?? [];
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

  /** Holds what a deployment's stages lack on these nodes. Rejects where they cannot all have it. */
  async reserve(deployment: string, nodeIds: readonly string[]): Promise<void> {
    const { control, clock } = this.#options;
    if (!dividesGpus(control.state, deployment)) return;
    const lacking = nodeIds.filter((nodeId) => !this.#isHeld(deployment, nodeId));
    const places = lacking.map((nodeId) => {
      const devices = stageDevices(control.state, control.jobs, { deployment, nodeId }) ?? [];
      return { nodeId, devices };
    });
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
   * Holds devices for stages that have moved, and releases those that no stage has any more; of those
   * deployments whose places are as planned.
   */
  follow(places: StagePlaces, settled: ReadonlySet<string>): void {
    if (settled.size === 0) return;
    const { control, clock, nodes } = this.#options;
    const wanted = new Map<string, Set<string>>();
    for (const [key, own] of places) {
      const known = wanted.get(deploymentOf(key)) ?? [];
      wanted.set(deploymentOf(key), new Set([...known, ...own.keys()]));
    }
    const memory = this.memory();
    for (const deployment of settled) {
      const used = [...(wanted.get(deployment) ?? [])];
      const able = used.filter((nodeId) => memory(nodeId, deployment) > 0);
      if (able.some((nodeId) => !this.#isHeld(deployment, nodeId))) {
        this.#run(deployment, () => this.reserve(deployment, able));
      }
    }
    const views = new Map(nodes().map((view) => [view.id, view]));
    for (const { deployment, nodeId, stage } of control.state.replicas.values()) {
      if (!stage || !settled.has(deployment) || wanted.get(deployment)?.has(nodeId)) continue;
      const view = views.get(nodeId);
      if (!view || view.replicas.some((each) => deploymentOf(each.deployment) === deployment))
        continue;
      const release = { type: "replica.release", deployment, nodeId } as const;
      this.#propose(replicaKey(release), { ...release, atMs: clock.wallMs() });
    }
  }

  #isHeld(deployment: string, nodeId: string): boolean {
    return this.#options.control.state.replicas.has(replicaKey({ deployment, nodeId }));
  }

  #propose(key: string, command: ControlCommand): void {
    this.#run(key, async () => void (await propose(this.#options.control, command)));
  }

  /** Once at a time; what fails is tried again with the next change of nodes or their reports. */
  #run(key: string, change: () => Promise<void>): void {
    if (this.#underWay.has(key)) return;
    this.#underWay.add(key);
    const onFailure = (error: unknown) => {
      const { code, message } = toAppError(error);
      this.#options.log.warn({ for: key, code, error: message }, "GPUs of stages did not change");
    };
    void change()
      .catch(onFailure)
      .finally(() => this.#underWay.delete(key));
  }
}
