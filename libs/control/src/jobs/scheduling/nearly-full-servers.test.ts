// holds: sched-shards-plan

import { type Random, seededRandom } from "@heddle/base/random";
import type { Plan } from "@heddle/scheduler/model";
import { jobEntry } from "@heddle/scheduler/plan-entry";
import { schedule } from "@heddle/scheduler/schedule";
import { expect, test } from "vitest";
import type { ControlReply } from "../../command.ts";
import { ReplicatedControl } from "../../replicated-control.ts";
import type { JobsCommand } from "../records/commands.ts";
import { jobId, jobSpec, nodeOffer } from "../testing/specs.ts";
import { schedulingInput } from "./scheduling-input.ts";
import { shardsOn } from "./shard-places.ts";

const SEQUENCES = Number(process.env["HEDDLE_PROPERTY_RUNS"] ?? 20);
const STEPS = 30;

/** A cluster with places for tasks in plenty, and parameter servers that fill up. */
class Cluster {
  readonly control = new ReplicatedControl();
  #atMs = 0;

  constructor(servers: readonly string[]) {
    const runs = { executors: ["training"], algorithms: ["weave"] };
    this.act({ type: "node.join", offer: nodeOffer("a", { ...runs, gpuCount: 64 }) });
    for (const id of servers) this.serverJoins(id);
  }

  act(command: Record<string, unknown>): ControlReply {
    this.#atMs += 1_000;
    const made = { atMs: this.#atMs, ...command } as unknown as JobsCommand;
    return this.control.apply({ type: "control", command: made }, this.control.index + 1);
  }

  serverJoins(id: string): void {
    const server = { id, name: id, address: `${id}:1`, incarnation: "1" };
    this.act({ type: "server.join", server });
  }

  submit(n: number, shards: number, fragments: number): void {
    const config = { parameter_servers: shards, fragments };
    const resources = { gpu_count: 1, cpu_cores: 0.1, memory_gb: 0.1 };
    const what = { command: undefined, algorithm: "weave", config, resources };
    const spec = jobSpec({ name: `n${n}`, ...what });
    this.act({ type: "job.submit", jobId: jobId(n), spec });
  }

  /** Plans and commits; returns what apply refused of the plan. */
  plan(): { readonly plan: Plan; readonly refused: readonly unknown[] } {
    const { control } = this;
    const at = { index: control.index, nowMs: this.#atMs };
    const plan = schedule(schedulingInput(control.state, control.jobs, at));
    const reply = this.act({
      type: "plan.commit",
      basedOnIndex: plan.basedOnIndex,
      overcommitRatio: 1,
      acknowledgeMs: 1e9,
      unsatisfiable: [],
      expired: [],
      preemptions: plan.preemptions,
      admitted: [...control.state.jobs.keys()],
      starts: plan.starts,
    });
    return { plan, refused: (reply.ok && reply.refused) || [] };
  }

  /** A job that has its places leaves them. */
  end(random: Random): void {
    const live = [...this.control.state.tasks.values()].filter(({ phase }) => phase !== "exited");
    const task = live[Math.floor(random() * live.length)];
    if (!task) return;
    const { jobId: id, attempt, rank, nodeId } = task;
    for (const phase of ["leased", "running", "exited"]) {
      const exit = phase === "exited" ? { endedAtMs: this.#atMs } : undefined;
      const reports = [{ jobId: id, attempt, rank, phase, exit }];
      this.act({ type: "tasks.report", nodeId, reports });
    }
  }
}

test("nearly full servers: a job whose shards fit no single server waits, and says so", () => {
  const cluster = new Cluster(["p", "q"]);
  // 32 of 256 places are left on each, then 28.
  cluster.submit(1, 14, 32);
  cluster.submit(2, 2, 4);
  expect(cluster.plan()).toMatchObject({ refused: [], plan: { starts: [{}, {}] } });
  expect(["p", "q"].map((id) => shardsOn(cluster.control.jobs, id))).toEqual([228, 228]);
  cluster.submit(3, 1, 32);
  const { plan, refused } = cluster.plan();
  expect(refused).toEqual([]);
  expect(plan.starts).toEqual([]);
  expect(plan.pending).toMatchObject([
    {
      entry: jobEntry(jobId(3)),
      blockers: [
        {
          reason: "Fragmented",
          resource: "parameter_server_shards_of_32_fragments",
          requested: 1,
          free: 0,
          limit: 16,
        },
      ],
    },
  ]);
  cluster.serverJoins("r");
  expect(cluster.plan()).toMatchObject({
    refused: [],
    plan: { starts: [{ entry: jobEntry(jobId(3)) }] },
  });
});

test(`nearly full servers: apply takes each plan of its state (${SEQUENCES} sequences)`, () => {
  const first = Math.floor(Math.random() * 2 ** 31);
  console.log(`first seed ${first}`);
  let started = 0;
  let waited = 0;
  for (let n = 0; n < SEQUENCES; n++) {
    const random = seededRandom(first + n);
    const below = (bound: number) => Math.floor(random() * bound);
    const cluster = new Cluster(["p", "q", "r"].slice(0, 1 + below(3)));
    let jobs = 0;
    for (let step = 0; step < STEPS; step++) {
      for (let more = below(4); more > 0; more--) {
        cluster.submit(jobs++, 1 + below(8), 1 + below(32));
      }
      if (below(3) === 0) cluster.end(random);
      const { plan, refused } = cluster.plan();
      expect(refused, `seed ${first + n}, step ${step}`).toEqual([]);
      started += plan.starts.length;
      const scattered = plan.pending.filter(({ blockers }) =>
        blockers.some(({ reason }) => reason === "Fragmented"),
      );
      waited += scattered.length;
    }
  }
  expect(started).toBeGreaterThan(SEQUENCES);
  expect(waited).toBeGreaterThan(0);
});
