import { AppError } from "@heddle/base/errors";
import type { LlamaDeployment, ReplicaStatus } from "@heddle/contracts/engine";
import type { StagePlan__Output } from "@heddle/contracts/generated/heddle/v1/StagePlan";
import type { DeploymentRecord } from "@heddle/control/state";
import { featuresWithStages } from "@heddle/rpc/engine-features";
import { emptyLoad } from "@heddle/rpc/node-codec";
import type { AttachedNode } from "../../attached-node.ts";
import type { StagePlaces } from "../placed-specs.ts";
import { type PlacementWorker, planPlacement } from "../placement-plan.ts";
import type { StageCandidate } from "../staged-replica.ts";
import { StagedReplicas, type StagedReplicasOptions } from "../staged-replicas.ts";

export const STAGED_SPEC: LlamaDeployment = {
  key: "m",
  engine: "llama",
  weights: { key: "m", file: "m.gguf", sources: ["file:///m.gguf"], sizeBytes: 1_000 },
  options: {},
  placement: { mode: "sharded" },
};
export const STAGE_SIZES = {
  contextTokens: 512,
  kvTokens: 1_024,
  maxSequences: 4,
  index: "f".repeat(64),
};
/** Longer than a new leader listens for what workers have. */
export const AFTER_ADOPTION_MS = 10_000;

/** A cluster of workers whose plans give each of the first three some blocks. */
export class StageBench {
  nowMs = 0;
  plans = 0;
  /** Why a worker cannot plan. */
  planFault: (worker: string) => AppError | undefined = () => undefined;
  /** What each worker says of the whole model. */
  sizeOf: (worker: string, whole: boolean) => number | AppError | Promise<number> = () => 1_000;
  /** Workers that were asked for it. */
  readonly asked: string[] = [];
  /** Workers that the latest plan considered. */
  considered: readonly string[] = [];
  readonly workers = new Map<string, StageCandidate>();
  /** Workers whose last stages have open calls. */
  readonly withCalls = new Set<string>();
  /** What they report: all that they had to load. */
  readonly #reports = new Map<string, ReplicaStatus>();
  readonly staged = this.leader();
  #actions: ReturnType<typeof planPlacement> = [];
  /** Whether it keeps GPUs without a stage. */
  keepsGpus = false;
  /** Which of them the stages run on; none if absent. */
  devices: StagedReplicasOptions["devices"] = {
    serves: () => false,
    held: () => new Set(),
    memory: () => () => 0,
    secure: async () => true,
    need: () => "",
  };
  spec = STAGED_SPEC;
  replicas = 1;

  constructor(...names: string[]) {
    for (const name of names) this.add(name);
  }

  /** A master that begins to lead. */
  leader(): StagedReplicas {
    return new StagedReplicas({
      clock: { monotonicMs: () => this.nowMs, wallMs: () => this.nowMs },
      random: () => 1,
      log: { info() {}, warn() {}, error() {} },
      onChange: () => {},
      devices: {
        serves: (key) => this.devices.serves(key),
        held: (key) => this.devices.held(key),
        memory: (when) => this.devices.memory(when),
        secure: (replica, able) => this.devices.secure(replica, able),
        need: (key) => this.devices.need(key),
      },
    });
  }

  /** Its rack is the first letters of the name, up to a dash. */
  add(
    name: string,
    leaving?: StageCandidate["leaving"],
    memoryBytes: number | null = 500,
    build = "1",
  ): void {
    const rack = name.includes("-") ? name.slice(0, name.indexOf("-")) : "";
    const planStages = async (request: { workers?: { node?: string }[] | null }) => {
      const fault = this.planFault(name);
      if (fault) throw fault;
      this.plans++;
      this.considered = (request.workers ?? []).map(({ node = "" }) => node);
      const nodes = this.considered.slice(0, 3);
      const stages = nodes.map((node, i) => ({ node, from: i, to: i + 1, memoryBytes: 400 }));
      return { stages, ...STAGE_SIZES } satisfies StagePlan__Output;
    };
    const sizeModel = async ({ whole = false }) => {
      this.asked.push(whole ? `${name} whole` : name);
      const size = await this.sizeOf(name, whole);
      if (size instanceof AppError) throw size;
      return { memoryBytes: size };
    };
    const node = {
      id: name,
      link: { planStages, sizeModel },
      register: {
        name,
        address: `${name}:1`,
        engineFeatures: featuresWithStages(build),
        fabric: "",
        rack,
      },
      replica: (key: string) => this.#reports.get(`${key}@${name}`),
      openCalls: () => (this.withCalls.has(name) ? 1 : 0),
    } as unknown as AttachedNode;
    this.workers.set(name, { node, leaving, memoryBytes: () => memoryBytes ?? undefined });
  }

  async places(staged = this.staged, isLeader = true): Promise<StagePlaces> {
    const deployments = new Map<string, DeploymentRecord>([
      ["m", { spec: this.spec, replicas: this.replicas }],
    ]);
    const all = () => {
      const placement = staged.places(deployments, [...this.workers.values()], isLeader);
      this.#actions = planPlacement(deployments, this.#views(), placement);
      this.keepsGpus = placement.keeping.has("m");
      return placement.places;
    };
    // The model's size, and then a plan, come later.
    for (let answers = 0; answers < 2; answers++) {
      all();
      await new Promise((resolve) => setImmediate(resolve));
    }
    return all();
  }

  /** What the workers are to do, without stages. */
  get actions(): readonly string[] {
    return this.#actions
      .filter(({ deployment }) => deployment === "m")
      .map(({ type, worker }) => `${type} ${worker}`);
  }

  #views(): PlacementWorker[] {
    return [...this.workers.values()].map(({ node: { id }, leaving }) => {
      const replicas = [...this.#reports]
        .filter(([at]) => at.endsWith(`@${id}`))
        .map(([, report]) => report);
      return { id, leaving, memoryBytes: 0, replicas };
    });
  }

  /** The worker has the whole model. */
  loadWhole(node: string): void {
    const pulled = { pulledBytes: 0, totalBytes: 0 };
    const status = { deployment: "m", phase: "ready", message: "", load: emptyLoad } as const;
    this.#reports.set(`m@${node}`, { ...status, ...pulled });
  }

  /** The worker reports that it cannot load a stage. */
  fail(at: string): void {
    this.#reports.set(at, { ...this.#reports.get(at)!, phase: "failed" });
  }

  /** The worker with the last stage reports that it does not reach these others. */
  part(last: string, others: readonly string[], forMs = 3_000): void {
    const unreachable = others.map((node) => ({ node, forMs }));
    this.#reports.set(`m@${last}`, {
      ...this.#reports.get(`m@${last}`)!,
      phase: "loading",
      unreachable,
    });
  }

  unload(node: string): void {
    this.#reports.delete(`m@${node}`);
  }

  /** The workers report what they have to load. */
  load(places: StagePlaces): void {
    for (const [deployment, own] of places) {
      for (const [node, spec] of own) {
        const stage = spec.engine === "llama" ? spec.stage : undefined;
        const status = { deployment, phase: "ready", message: "", load: emptyLoad } as const;
        const pulled = { pulledBytes: 0, totalBytes: 0 };
        this.#reports.set(`${deployment}@${node}`, { ...status, ...pulled, stage });
      }
    }
  }
}

export const stagePlacesOf = (places: StagePlaces) =>
  [...places].flatMap(([key, own]) => [...own.keys()].map((node) => `${key} ${node}`)).sort();
