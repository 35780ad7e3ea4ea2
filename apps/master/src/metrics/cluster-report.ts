import { statfs } from "node:fs/promises";
import { cpus, freemem, totalmem } from "node:os";
import { SharedRun } from "@heddle/base/async/shared-run";
import { StepQueue } from "@heddle/base/async/step-queue";
import { forEachInSteps, type Steps } from "@heddle/base/async/steps";
import type { ClusterStatusReply } from "@heddle/contracts/api/cluster";
import type { DetailedHealth, MasterHealth } from "@heddle/contracts/api/health";
import type { ClusterLoad, ReplicaLoad } from "@heddle/observability/inference-metrics";
import { Inject } from "@nestjs/common";
import { MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { VERSION } from "../config/version.ts";
import type { GroupMember, GroupStatus, MemberProgress } from "../control-plane/control-group.ts";
import { AUTHORITY_HASH } from "../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { InFlight } from "../inference/in-flight.ts";
import { type GpuSums, sumDistinctGpus } from "../nodes/hosts.ts";
import { NODE_DIRECTORY, type NodeDirectory } from "../nodes/node-directory.ts";
import { countNodes, type NodeCounts } from "./node-counts.ts";

/** What this master knows of itself and the cluster, measured per request. */
export class ClusterReport {
  readonly #control: ControlPlane;
  readonly #directory: NodeDirectory;
  readonly #inFlight: InFlight;
  readonly #config: Pick<MasterConfig, "masterId" | "dataDirectory">;
  readonly #nodes: SharedRun<{
    readonly nodes: number;
    readonly counts: NodeCounts;
    readonly gpus: GpuSums;
  }>;
  readonly #authorityHash: string | null;
  readonly #startedAtMs = performance.now();
  #cpu = cpuTimes();
  #cpuPercent = 0;

  /** `views` runs the views of the cluster, one at a time. */
  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(NODE_DIRECTORY) directory: NodeDirectory,
    @Inject(InFlight) inFlight: InFlight,
    @Inject(MASTER_CONFIG) config: Pick<MasterConfig, "masterId" | "dataDirectory">,
    @Inject(StepQueue) views: StepQueue,
    @Inject(AUTHORITY_HASH) authorityHash: string | null,
  ) {
    this.#authorityHash = authorityHash;
    this.#control = control;
    this.#directory = directory;
    this.#inFlight = inFlight;
    this.#config = config;
    this.#nodes = new SharedRun(views, (inSteps) => inSteps(() => this.#countNodes()));
  }

  get uptimeSeconds(): number {
    return Math.round(performance.now() - this.#startedAtMs) / 1000;
  }

  async status(): Promise<ClusterStatusReply> {
    const control = this.#control;
    const group = await this.#group();
    const { nodes, counts, gpus } = await this.#nodes.get();
    return {
      status: counts.workers > 0 ? "ok" : "degraded",
      version: VERSION,
      authority_sha256: this.#authorityHash,
      uptime_seconds: this.uptimeSeconds,
      ...group,
      workers: { attached: counts.workers },
      parameter_servers: { attached: nodes - counts.workers },
      gpus: { total: gpus.count, simulated: gpus.simulated },
      models: { registered: control.state.models.size },
      deployments: { registered: control.state.deployments.size },
      replicas: { ready: counts.readyReplicas, total: counts.replicas },
      requests: {
        in_flight: this.#inFlight.size,
        running: counts.running,
        waiting: counts.waiting,
      },
    };
  }

  *#countNodes() {
    const nodes = this.#directory.nodes();
    const counts = yield* countNodes(nodes);
    return { nodes: nodes.length, counts, gpus: yield* sumDistinctGpus(nodes) };
  }

  /** The masters as this one sees them; a master outside a group is its own leader. */
  async #group() {
    const control = this.#control;
    const { masterId } = this.#config;
    const group = await control.group?.statusAfterPauses();
    if (!group) return aloneReport(masterId);
    // Without the leader's answer the rest is still useful.
    const progress = (await control.group?.progress().catch(() => undefined)) ?? [];
    const nameOf = (id: number | undefined) =>
      group.members.find((member) => member.id === id)?.name ?? null;
    return {
      cluster: group.cluster,
      answered_by: nameOf(group.id) ?? masterId,
      leader: nameOf(group.leader),
      ...quorumReport(group, progress),
      // Without a leader this master cannot know whether the others have advanced.
      may_be_stale: group.leader === undefined || group.isBehind,
      term: group.term,
      commit: group.commit,
      applied: group.applied,
      snapshot_index: group.snapshotIndex,
      commands: group.commands,
      state_hash: group.stateHash,
      cluster_version: group.clusterVersion,
      supported_cluster_version: group.supportedVersion,
      masters: group.members.map((member) => {
        const { match = null, behind } = progress.find(({ id }) => id === member.id) ?? {};
        return {
          id: member.name,
          member: member.id,
          role: roleOf(member, group),
          address: member.address,
          connected: member.connected,
          match,
          lag: match === null ? null : Math.max(0, group.commit - match),
          ...(behind ? { behind } : {}),
        };
      }),
    };
  }

  /** `accessFault` says why roles of the configuration are not set. */
  async health(accessFault: string | undefined): Promise<DetailedHealth> {
    const inFlight = this.#inFlight;
    const workers = this.#directory.nodes().filter((node) => node.kind === "worker");
    const disk = await statfs(this.#config.dataDirectory);
    const control = controlHealth(this.#control);
    const attached = workerHealth(workers.length);
    const nodes = this.#nodeHealth();
    const access = accessHealth(accessFault);
    const parts = [control, attached, nodes, access];
    return {
      status: parts.find(({ status }) => status !== "ok")?.status ?? "ok",
      timestamp: new Date().toISOString(),
      version: VERSION,
      uptime_seconds: this.uptimeSeconds,
      components: {
        api: { status: inFlight.closing ? "draining" : "ok", in_flight: inFlight.size },
        control,
        workers: { ...attached, attached: workers.length },
        nodes,
        access,
      },
      resource_usage: {
        cpu_percent: this.#sampleCpu(),
        memory_percent: percent(totalmem() - freemem(), totalmem()),
        disk_percent: percent(disk.blocks - disk.bfree, disk.blocks),
      },
    };
  }

  /** The answer of `GET /health`, without names. */
  briefHealth(): MasterHealth {
    const { status, refusing, detail } = this.#nodeHealth();
    const why = refusing > 0 ? { refusing_nodes: refusing, detail } : {};
    return { status, version: VERSION, uptime: this.uptimeSeconds, ...why };
  }

  /** Attached nodes that refuse this master's cluster or its leader. */
  #nodeHealth() {
    const nodes = this.#directory.nodes();
    const refusing = nodes.filter(({ refusesLeader }) => refusesLeader !== undefined).length;
    if (refusing === 0) return { status: "ok", detail: "", refusing };
    // This is public: the nodes and reasons are for callers that may list them.
    const detail = `nodes refuse this master's cluster or its leader: ${refusing}; heddle workers list -o wide says why`;
    return { status: "degraded", detail, refusing };
  }

  /** The readiness checks by name; undefined where one passes. */
  readiness(): Record<string, string | undefined> {
    const control = this.#control;
    return {
      api: this.#inFlight.closing ? "shutting down" : undefined,
      control: control.fault?.message,
      quorum: hasQuorum(control)
        ? undefined
        : "there is no leader that a majority of masters follows",
    };
  }

  /** The load of all replicas, and the use of each model's KV caches. */
  *load(): Steps<ClusterLoad> {
    const replicas: ReplicaLoad[] = [];
    const caches = new Map<string, { used: number; all: number }>();
    yield* forEachInSteps(this.#directory.nodes(), ({ id: node, replicas: own }) => {
      for (const { deployment, load } of own) {
        const { running, waiting, kvUsedTokens, kvTokens } = load;
        replicas.push({ node, deployment, running, waiting });
        const cache = caches.get(deployment) ?? { used: 0, all: 0 };
        cache.used += kvUsedTokens;
        cache.all += kvTokens;
        caches.set(deployment, cache);
      }
    });
    const kvUsage = new Map<string, number>();
    yield* forEachInSteps(this.#control.state.models.values(), ({ id, deployment }) => {
      const { used, all } = caches.get(deployment) ?? { used: 0, all: 0 };
      kvUsage.set(id, all === 0 ? 0 : used / all);
    });
    return { kvUsage, replicas };
  }

  /** Over all cores since the last sample; the last value if that is recent. */
  #sampleCpu(): number {
    const now = cpuTimes();
    const total = now.total - this.#cpu.total;
    if (total < 100) return this.#cpuPercent;
    this.#cpuPercent = percent(now.busy - this.#cpu.busy, total);
    this.#cpu = now;
    return this.#cpuPercent;
  }
}

/** A master outside a group decides by itself. */
function aloneReport(masterId: string) {
  return {
    leader: masterId,
    health: "ok" as const,
    quorum: { voters: 1, required: 1, reachable: 1, has_quorum: true },
    masters: [{ id: masterId, role: "leader" as const }],
  };
}

function quorumReport(group: GroupStatus, progress: readonly MemberProgress[]) {
  const voters = group.members.filter(({ votes }) => votes);
  const required = Math.floor(voters.length / 2) + 1;
  const active = new Map(progress.map(({ id, active }) => [id, active]));
  const reachable = voters.filter(({ id, connected }) => active.get(id) ?? connected).length;
  const health = group.leader === undefined ? "unavailable" : "degraded";
  // With a voter that lags behind, the loss of another one would lose the quorum.
  const isBehind = (id: number) => progress.some((member) => member.id === id && member.behind);
  const isWhole = reachable === voters.length && !voters.some(({ id }) => isBehind(id));
  return {
    health: group.leader !== undefined && isWhole ? ("ok" as const) : health,
    quorum: {
      voters: voters.length,
      required,
      reachable,
      has_quorum: group.leader !== undefined && reachable >= required,
    },
  } as const;
}

function roleOf(member: GroupMember, group: GroupStatus): "leader" | "follower" | "learner" {
  if (member.id === group.leader) return "leader";
  return member.votes ? "follower" : "learner";
}

function cpuTimes(): { busy: number; total: number } {
  let busy = 0;
  let idle = 0;
  for (const { times } of cpus()) {
    busy += times.user + times.nice + times.sys + times.irq;
    idle += times.idle;
  }
  return { busy, total: busy + idle };
}

function percent(part: number, whole: number): number {
  return whole > 0 ? Math.round((part / whole) * 1000) / 10 : 0;
}

function workerHealth(attached: number) {
  if (attached > 0) return { status: "ok", detail: "" };
  return { status: "degraded", detail: "no worker is attached: no model can answer" };
}

/** Without names of roles and users: this is public. */
function accessHealth(fault: string | undefined) {
  if (fault === undefined) return { status: "ok", detail: "" };
  const detail = "the roles of the --auth-file are not all set: the master's log says why";
  return { status: "degraded", detail };
}

function hasQuorum({ group }: ControlPlane): boolean {
  return group === undefined || group.status().leader !== undefined;
}

function controlHealth({ fault, group }: ControlPlane) {
  if (fault) return { status: "unavailable", detail: fault.message };
  if (!group) return { status: "ok", detail: "" };
  const { leader, isBehind } = group.status();
  if (leader === undefined) {
    const detail = "there is no leader: changes are refused until there is one";
    return { status: "degraded", detail };
  }
  if (!isBehind) return { status: "ok", detail: "" };
  const detail = "this master does not catch up with the leader: what it shows may be stale";
  return { status: "degraded", detail };
}
