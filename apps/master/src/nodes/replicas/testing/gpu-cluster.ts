import { AppError } from "@heddle/base/errors";
import type { DeploymentSpec, ReplicaStatus } from "@heddle/contracts/engine";
import type { StagePlan__Output } from "@heddle/contracts/generated/heddle/v1/StagePlan";
import type { ControlCommand } from "@heddle/control/command";
import { PlannedCluster } from "@heddle/control/jobs/testing/planned-cluster";
import { scheduledModel } from "@heddle/control/jobs/testing/specs";
import { featuresWithStages } from "@heddle/rpc/engine-features";
import { emptyLoad } from "@heddle/rpc/node-codec";
import type { ControlPlane } from "../../../control-plane/control-plane.ts";
import type { NodeView } from "../../node-directory.ts";
import { StageDevices } from "../stage-devices.ts";
import type { StageCandidate } from "../staged-replica.ts";
import { StagedReplicas } from "../staged-replicas.ts";
import { STAGE_SIZES } from "./stage-bench.ts";

const GPU_BYTES = 16 * 2 ** 30;
const NO_PULL = { pulledBytes: 0, totalBytes: 0 };
const LOG = { info() {}, warn() {}, error() {} };

/** Workers with a GPU each, and models whose stages get these from the scheduler. */
export class GpuCluster {
  readonly #cluster = new PlannedCluster();
  readonly #clock = {
    monotonicMs: () => this.#cluster.atMs,
    wallMs: () => this.#cluster.atMs,
  };
  readonly #devices: StageDevices;
  readonly #staged: StagedReplicas;
  /** By worker: what it runs, by key. */
  readonly #runs = new Map<string, Map<string, ReplicaStatus>>();
  readonly #failed = new Set<string>();
  /** By model. */
  readonly #stages = new Map<string, number>();

  constructor() {
    const { control } = this.#cluster;
    const plane = {
      state: control.state,
      get jobs() {
        return control.jobs;
      },
      propose: async (command: ControlCommand) => this.#cluster.do({ ...command }),
    } as unknown as ControlPlane;
    const options = { clock: this.#clock, log: LOG };
    const nodes = () => this.workers.map((id) => this.#view(id));
    this.#devices = new StageDevices({ ...options, control: plane, nodes });
    this.#staged = new StagedReplicas({
      ...options,
      random: () => 1,
      onChange: () => {},
      devices: this.#devices,
    });
  }

  close(): void {
    this.#staged.close();
  }

  get workers(): readonly string[] {
    return [...this.#runs.keys()];
  }

  /** Registers a model that takes as many workers. */
  register(key: string, stages: number): void {
    this.#stages.set(key, stages);
    const made = scheduledModel(key, 1, 0) as Extract<ControlCommand, { type: "model.register" }>;
    const spec = { ...made.deployment.spec, placement: { mode: "sharded" } };
    this.#cluster.do({ ...made, deployment: { ...made.deployment, spec } });
  }

  join(id: string): void {
    this.#runs.set(id, new Map());
    this.#cluster.join(id, { gpuCount: 1, incarnation: `${this.#cluster.atMs}` });
  }

  lose(id: string): void {
    this.#runs.delete(id);
    this.#cluster.do({ type: "node.lost", nodeIds: [id], fencedAtMs: this.#cluster.atMs });
    this.#cluster.fence();
  }

  /** The worker's GPU fails, or is well again. */
  setFailed(id: string, isFailed: boolean): void {
    if (isFailed) this.#failed.add(id);
    else this.#failed.delete(id);
    const why = isFailed ? "Xid 79" : undefined;
    this.#cluster.do({ type: "node.quarantine", nodeId: id, device: 0, why });
  }

  /** Has time pass, with a leader that places stages and a scheduler that grants GPUs. */
  async pass(seconds: number): Promise<void> {
    const endMs = this.#cluster.atMs + seconds * 1_000;
    while (this.#cluster.atMs < endMs) {
      this.#cluster.pass(1_000);
      const { state } = this.#cluster.control;
      const placement = this.#staged.places(state.deployments, this.#candidates(), true);
      this.#devices.follow(placement);
      // Plans and changes come later.
      for (let turns = 0; turns < 2; turns++) await new Promise((resolve) => setImmediate(resolve));
      this.#load(placement.places);
      if (state.stageClaims.size > 0) this.#cluster.plan();
    }
  }

  /** The workers of each model of which all stages are there. */
  complete(): Map<string, readonly string[]> {
    const found = new Map<string, readonly string[]>();
    for (const [id, runs] of this.#runs) {
      for (const [key, { stage }] of runs) {
        const peers = stage?.peers ?? [];
        const areThere = peers.every((peer) => this.#runs.get(peer.node)?.has(peer.deployment));
        const nodes = [...peers.map(({ node }) => node), id];
        const isWell = nodes.every((node) => !this.#failed.has(node));
        if (peers.length > 0 && areThere && isWell) found.set(key, nodes);
      }
    }
    return found;
  }

  /** The workers whose GPU a model holds. */
  held(key: string): readonly string[] {
    return [...this.#devices.held(key)].sort();
  }

  /** Models that are not complete though as many GPUs as they need serve no other one. */
  stuck(): readonly string[] {
    const complete = this.complete();
    const used = new Set([...complete.values()].flat());
    const free = this.workers.filter((id) => !used.has(id) && !this.#failed.has(id));
    return [...this.#stages]
      .filter(([key, stages]) => !complete.has(key) && stages <= free.length)
      .map(([key]) => key);
  }

  #view(id: string): NodeView {
    const replicas = [...this.#runs.get(id)!.keys()].map((deployment) => ({ deployment }));
    const gpu = { index: 0, uuid: id, memoryBytes: GPU_BYTES, simulated: false };
    const seen = { attachedAtMs: 0, lastSeenMs: 1 };
    return { id, hostId: id, ...seen, gpus: [gpu], replicas } as unknown as NodeView;
  }

  #candidates(): StageCandidate[] {
    const memory = this.#devices.memory();
    return this.workers.map((id) => {
      const node = {
        id,
        link: { planStages: this.#plan },
        register: {
          name: id,
          address: `${id}:1`,
          engineFeatures: featuresWithStages("1"),
          fabric: "",
          rack: "",
        },
        replica: (key: string) => this.#runs.get(id)?.get(key),
        openCalls: () => 0,
      } as unknown as StageCandidate["node"];
      return { node, leaving: undefined, memoryBytes: (key) => memory(id, key) };
    });
  }

  readonly #plan = async (request: {
    weights?: { key?: string } | null;
    workers?: { node?: string }[] | null;
  }): Promise<StagePlan__Output> => {
    const count = this.#stages.get(request.weights?.key ?? "") ?? 0;
    const nodes = (request.workers ?? []).map(({ node = "" }) => node).slice(0, count);
    if (nodes.length < count) throw new AppError("unprocessable", "these workers are too few");
    const stages = nodes.map((node, i) => ({ node, from: i, to: i + 1, memoryBytes: 400 }));
    return { stages, ...STAGE_SIZES };
  };

  /** Workers load what they are to, once there are GPUs for it, and unload all else. */
  #load(places: ReadonlyMap<string, ReadonlyMap<string, DeploymentSpec>>): void {
    for (const [id, runs] of this.#runs) {
      for (const key of runs.keys()) if (!places.get(key)?.has(id)) runs.delete(key);
      for (const [key, own] of places) {
        const spec = own.get(id);
        const placed = spec && this.#devices.specOn(spec, id);
        if (placed?.engine !== "llama") continue;
        const status = { deployment: key, phase: "ready", message: "", load: emptyLoad } as const;
        runs.set(key, { ...status, ...NO_PULL, stage: placed.stage });
      }
    }
  }
}
