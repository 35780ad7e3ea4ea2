import { seededRandom } from "@heddle/base/random";
import { CLUSTER_SETTINGS } from "@heddle/contracts/api/settings";
import type { ControlCommand } from "@heddle/control/command";
import { IncrementalSnapshot } from "@heddle/control/jobs/scheduling/incremental-snapshot";
import { ReplicatedControl } from "@heddle/control/replicated-control";
import type { SchedulingSnapshot } from "@heddle/scheduler/cycle/scheduling-cycle";
import type { NodeSnapshot } from "@heddle/scheduler/model";
import { entryKey } from "@heddle/scheduler/plan-entry";
import { decide } from "@heddle/scheduler/schedule";
import { joinOf, submitOf } from "./control-commands.ts";
import { syntheticJob, syntheticNode } from "./throughput.ts";

const NODES = 5_000;
const JOBS = 10_000;
/** Jobs that wait, because no node has enough GPUs of that type. */
const WAITING = 10;
const ROUNDS = 5;
const SEED = 42;

/** CPU time of the scheduler's next cycle after one change, in milliseconds. */
export interface NodeChangeCosts {
  readonly nodes: number;
  readonly running: number;
  readonly waiting: number;
  /** Keyed by kind of change: its apply and the update of the cluster view; the median. */
  readonly viewMs: Readonly<Record<string, number>>;
  /** The same with the decision that follows. */
  readonly decidedMs: Readonly<Record<string, number>>;
  /** A full rebuild of the view, as every node change required before; the median. */
  readonly rebuiltMs: number;
}

/** Measures on a full synthetic cluster, one change of one node at a time. */
export function measureNodeChanges(): NodeChangeCosts {
  const cluster = new Cluster();
  const random = seededRandom(SEED + 2);
  const viewMs: Record<string, number[]> = {};
  const decidedMs: Record<string, number[]> = {};
  for (let round = 0; round < ROUNDS; round++) {
    const added = syntheticNode(NODES + round, random);
    for (const [name, command] of Object.entries(changesOf(cluster.nodes[round]!, added))) {
      const startUs = cpuUs();
      cluster.apply(command);
      const baseline = cluster.view();
      const viewedUs = cpuUs();
      decide(baseline);
      note(viewMs, name, viewedUs - startUs);
      note(decidedMs, name, cpuUs() - startUs);
    }
  }
  const rebuilt: Record<string, number[]> = {};
  for (let round = 0; round < ROUNDS; round++) {
    const startUs = cpuUs();
    cluster.rebuildView();
    note(rebuilt, "anew", cpuUs() - startUs);
  }
  const running = cluster.view().view.running.jobs;
  const sizes = { nodes: NODES, running, waiting: WAITING };
  const rebuiltMs = medians(rebuilt)["anew"]!;
  return { ...sizes, viewMs: medians(viewMs), decidedMs: medians(decidedMs), rebuiltMs };
}

function changesOf(node: NodeSnapshot, added: NodeSnapshot): Record<string, ControlCommand> {
  const { id: nodeId } = node;
  const atMs = 2_000;
  const again = joinOf(node) as Extract<ControlCommand, { type: "node.join" }>;
  const labelled = { ...again, offer: { ...again.offer, labels: { zone: "b" } } };
  return {
    "a job is submitted": submitOf(
      Number(added.id.slice(5)) + JOBS,
      syntheticJob(0, () => 0),
    ),
    "a node joins": joinOf(added),
    "a node's labels change": labelled,
    "a node drains": { type: "node.drain", atMs, nodeId, byMs: 3_000 },
    "a node resumes": { type: "node.resume", atMs, nodeId, healthyDevices: [] },
  };
}

/** The replicated state of a cluster with as many running jobs as fit. */
class Cluster {
  readonly control = new ReplicatedControl();
  readonly nodes: readonly NodeSnapshot[];
  readonly #live = new IncrementalSnapshot(this.control.state, this.control.jobs);

  constructor() {
    const random = seededRandom(SEED);
    this.nodes = Array.from({ length: NODES }, (_, at) => syntheticNode(at, random));
    const name = "max_concurrent_jobs";
    const value = CLUSTER_SETTINGS[name].maximum;
    this.apply({ type: "setting.put", atMs: 1_000, name, value });
    for (const node of this.nodes) this.apply(joinOf(node));
    for (let at = 0; at < JOBS; at++) this.apply(submitOf(at, syntheticJob(at, random)));
    const { starts } = decide(this.view());
    const rest = { unsatisfiable: [], preemptions: [], expired: [], acknowledgeMs: 1e9 };
    const admitted = starts.map(({ entry }) => entryKey(entry));
    const plan = { atMs: 1_000, basedOnIndex: 0, overcommitRatio: 1, admitted, starts };
    this.apply({ type: "plan.commit", ...plan, ...rest });
    for (let at = JOBS; at < JOBS + WAITING; at++) {
      const wide = syntheticJob(at, random);
      const request = { ...wide.request, gpus: 64, gpuMilli: 1_000 };
      this.apply(submitOf(at, { ...wide, request }));
    }
    decide(this.view());
  }

  apply(command: ControlCommand): void {
    const index = this.control.index + 1;
    const reply = this.control.apply({ type: "control", command }, index);
    if (!reply.ok) throw new Error(reply.message);
  }

  rebuildView(): SchedulingSnapshot {
    const live = new IncrementalSnapshot(this.control.state, this.control.jobs);
    return live.take({ index: this.control.index, nowMs: 2_000 });
  }

  view(): SchedulingSnapshot {
    return this.#live.take({ index: this.control.index, nowMs: 2_000 });
  }
}

function note(times: Record<string, number[]>, name: string, us: number): void {
  times[name] = [...(times[name] ?? []), us / 1_000];
}

function cpuUs(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}

function medians(times: Readonly<Record<string, number[]>>): Record<string, number> {
  const middle = (values: number[]) => values.sort((a, b) => a - b)[values.length >> 1]!;
  const entries = Object.entries(times).map(([name, values]) => [name, middle(values)] as const);
  return Object.fromEntries(entries.map(([name, ms]) => [name, Number(ms.toFixed(3))]));
}
