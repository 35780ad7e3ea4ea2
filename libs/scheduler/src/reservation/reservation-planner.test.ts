// holds: sched-reservations

import { describe, expect, it } from "vitest";
import type { QueuedJob, SharedAmounts } from "../model.ts";
import { entryKey, jobEntry } from "../plan-entry.ts";
import { schedule } from "../schedule.ts";
import { advance } from "../testing/advance.ts";
import { HOUR_MS, input, node, project, queued, request, running } from "../testing/scenarios.ts";

const NOW_MS = 60_000;
/** The maximum number of reservations at a time. */
const MAX_PROMISES = 16;

/** Nodes of one GPU, each with its name as a label. */
const hosts = (...ids: string[]) => ids.map((id) => node(id, { gpus: 1, labels: { host: id } }));

/** A job that may run on these nodes alone. */
const pinned = (id: string, to: readonly string[], change: Partial<QueuedJob> = {}) =>
  queued(id, {
    request: request({ nodeAffinity: [{ key: "host", operator: "in", values: to }] }),
    ...change,
  });

const low = (at: string, change: object = {}) =>
  running(`low-${at}`, [{ nodeId: at, devices: [0] }], { priority: -5, ...change });
/** A job that is not preemptible. */
const firm = (at: string, hours = 5) =>
  low(at, { preemptible: false, maxRuntimeMs: hours * HOUR_MS });

const at = (snapshot: object, queue: readonly QueuedJob[], settings = {}) =>
  input(snapshot, queue, { nowMs: NOW_MS, settings });
const victims = (given: ReturnType<typeof at>) =>
  schedule(given).preemptions.map(
    ({ victimId, forEntry }) => `${victimId} for ${entryKey(forEntry)}`,
  );

describe("a job that waits for its nodes", () => {
  const urgent = pinned("urgent", ["a"], { priority: 9 });

  it.each([
    ["a job pinned to other nodes", pinned("other", ["b"])],
    ["a job that may go anywhere", queued("other")],
    ["a job of the same level", pinned("other", ["b"], { priority: 9, submittedAtMs: 1 })],
  ])("does not keep %s from evicting there", (_, other) => {
    const given = at({ nodes: hosts("a", "b"), running: [firm("a"), low("b")] }, [urgent, other]);
    expect(victims(given)).toEqual(["low-b for other"]);
    const { reservations, ranked } = schedule(given);
    expect(reservations).toMatchObject([
      { entry: jobEntry("urgent"), startAtMs: 5 * HOUR_MS, placements: [{ nodeId: "a" }] },
      { entry: jobEntry("other"), startAtMs: NOW_MS + 120_000, placements: [{ nodeId: "b" }] },
    ]);
    expect(ranked.map(entryKey)).toEqual(["urgent", "other"]);
  });

  it("counts only jobs that may use its nodes as ahead", () => {
    const queue = [urgent, pinned("apart", ["b"]), pinned("next", ["b", "c"])];
    const busy = ["a", "b", "c"].map((id) => firm(id));
    const { pending } = schedule(at({ nodes: hosts("a", "b", "c"), running: busy }, queue));
    const reasons = (of: string) =>
      pending.find(({ entry }) => entryKey(entry) === of)?.blockers.map(({ reason }) => reason);
    expect(reasons("apart")).toEqual(["InsufficientGpu"]);
    expect(reasons("next")).toEqual(["InsufficientGpu", "PriorityBehind"]);
  });

  it("keeps later jobs off the nodes that it may use; they may evict on others", () => {
    const wide = pinned("wide", ["a", "b"], { priority: 9 });
    const busy = [firm("a", 1), firm("b", 2), low("c"), low("d")];
    const nodes = hosts("a", "b", "c", "d");
    const behind = [pinned("partly", ["b", "c"], { submittedAtMs: 1 }), pinned("on-b", ["b"])];
    // No job is evicted on b, though it is preemptible: the waiting job may still need it.
    const low2 = busy.map((job) => (job.id === "low-b" ? low("b", { priority: 5 }) : job));
    const given = at({ nodes, running: low2 }, [wide, ...behind]);
    expect(victims(given)).toEqual(["low-b for wide", "low-c for partly"]);
    expect(victims(at({ nodes, running: busy }, [wide, ...behind]))).toEqual(["low-c for partly"]);
  });

  it("keeps what a gang behind it needs in part: none of that is evicted", () => {
    const gang = { ...pinned("gang", ["a", "b"]), tasks: 2 };
    const given = at({ nodes: hosts("a", "b"), running: [firm("a"), low("b")] }, [
      urgent,
      gang,
      // It may not take what the gang before it waits for.
      pinned("last", ["b"], { priority: -1 }),
    ]);
    expect(victims(given)).toEqual([]);
    expect(schedule(given).reservations.map(({ entry }) => entryKey(entry))).toEqual(["urgent"]);
  });

  it("evicts no victim for a job that finds room as soon beside the reservations", () => {
    const soon = low("a", { preemptible: false, maxRuntimeMs: 2 * NOW_MS });
    const nodes = [...hosts("b"), node("a", { gpus: 2, labels: { host: "a" } })];
    const two = running("firm", [{ nodeId: "a", devices: [1] }], { preemptible: false });
    const either = pinned("either", ["a", "b"]);
    const first = pinned("first", ["a"], { priority: 9 });
    expect(victims(at({ nodes, running: [firm("a"), two, low("b")] }, [first, either]))).toEqual([
      "low-b for either",
    ]);
    // Both devices of a are free in a minute: one for each.
    const ends = { ...two, maxRuntimeMs: 2 * NOW_MS };
    expect(victims(at({ nodes, running: [soon, ends, low("b")] }, [first, either]))).toEqual([]);
  });

  it("blocks no other job if nothing can give it a start", () => {
    const service = low("a", { kind: "serving", maxRuntimeMs: undefined });
    const given = at({ nodes: hosts("a", "b"), running: [service, low("b")] }, [
      { ...pinned("never", ["a", "b"], { priority: 9 }), tasks: 2 },
      pinned("next", ["b"]),
    ]);
    expect(victims(given)).toEqual(["low-b for next"]);
  });

  it("blocks no other job even if an earlier one has nodes that it may use", () => {
    const nodes = ["a", "b"].map((id) => node(id, { gpus: 2, labels: { host: id } }));
    const services = ["a", "b"].map((id) =>
      running(`service-${id}`, [{ nodeId: id, devices: [1] }], {
        kind: "serving",
        preemptible: false,
        maxRuntimeMs: undefined,
      }),
    );
    const both = request({
      gpus: 2,
      nodeAffinity: [{ key: "host", operator: "in", values: ["a", "b"] }],
    });
    const never = queued("never", { priority: 9, submittedAtMs: 1, request: both });
    const busy = [...services, firm("a"), low("b")];
    // The first one's reservation ranks it before the other in the next cycle.
    for (const submittedAtMs of [0, 2]) {
      const queue = [{ ...urgent, submittedAtMs }, never, pinned("next", ["b"])];
      expect(victims(at({ nodes, running: busy }, queue))).toEqual(["low-b for next"]);
    }
  });

  // holds: sched-reserved-quota
  it("keeps the quota of its reserved start from later starts", () => {
    const projects = [project("p1", { quota: { gpuMilli: 2_000 } })];
    const running = [{ ...firm("a"), project: "p2" }];
    const queue = [
      { ...pinned("first", ["a", "b"]), tasks: 2 },
      pinned("long", ["c"], { submittedAtMs: 1, maxRuntimeMs: 9 * HOUR_MS }),
      pinned("other", ["c"], { submittedAtMs: 2, project: "p2" }),
    ];
    const { starts, pending } = schedule(
      at({ nodes: hosts("a", "b", "c"), running, projects }, queue),
    );
    expect(starts.map(({ entry }) => entryKey(entry))).toEqual(["other"]);
    const held = { reason: "QuotaExceeded", requested: 1_000, free: 0, limit: 2_000 };
    expect(pending.find(({ entry }) => entryKey(entry) === "long")?.blockers[0]).toMatchObject(
      held,
    );
  });

  // holds: sched-reserved-quota
  it("keeps the quota that it needs from later reservations", () => {
    const projects = [project("p1", { quota: { gpuMilli: 3_000 } })];
    const busy = [firm("a"), low("b")];
    const given = at({ nodes: hosts("a", "b"), running: busy, projects }, [
      urgent,
      pinned("other", ["b"]),
    ]);
    expect(victims(given)).toEqual([]);
    const wider = [project("p1", { quota: { gpuMilli: 4_000 } })];
    const snapshot = { ...given.snapshot, projects: wider };
    expect(victims({ ...given, snapshot })).toEqual(["low-b for other"]);
  });

  // holds: sched-reserved-quota
  it("without a reservation, keeps its quota from later reservations", () => {
    const gang = { ...pinned("gang", ["a", "b"]), tasks: 2 };
    const behind = pinned("behind", ["c"], { submittedAtMs: 1 });
    const nodes = hosts("a", "b", "c");
    const victimsUnder = (quota: object, settings = {}) => {
      const projects = [project("p1", { quota })];
      const snapshot = { nodes, running: [firm("a"), low("b"), low("c")], projects };
      return victims(at(snapshot, [urgent, gang, behind], settings));
    };
    // Three are held, one is reserved, and the gang needs two.
    expect(victimsUnder({ gpuMilli: 6_000 })).toEqual([]);
    expect(victimsUnder({ gpuMilli: 7_000 })).toEqual(["low-c for behind"]);
    expect(victimsUnder({}, { maxConcurrentJobs: 5 })).toEqual([]);
    expect(victimsUnder({}, { maxConcurrentJobs: 6 })).toEqual(["low-c for behind"]);
  });

  it("keeps no quota for a job of another project, or for one without a start", () => {
    const nodes = hosts("a", "b", "c");
    const gang = { ...pinned("gang", ["a", "b"]), tasks: 2 };
    const projects = [project("p1", { quota: { gpuMilli: 5_000 } })];
    const busy = [firm("a"), low("b"), low("c")];
    const behind = pinned("behind", ["c"], { submittedAtMs: 1 });
    const foreign = { ...gang, project: "p2" };
    const snapshot = { nodes, running: busy, projects };
    expect(victims(at(snapshot, [urgent, foreign, behind]))).toEqual(["low-c for behind"]);
    const service = low("a", { kind: "serving", maxRuntimeMs: undefined });
    const endless = { ...snapshot, running: [service, low("b"), low("c")] };
    expect(victims(at(endless, [gang, behind]))).toEqual(["low-c for behind"]);
  });

  it("protects its start, and each later reservation, against backfill", () => {
    const nodes = [...hosts("a"), node("b", { gpus: 2, labels: { host: "b" } })];
    const firmB = running("firm-b", [{ nodeId: "b", devices: [0] }], {
      preemptible: false,
      maxRuntimeMs: 2 * HOUR_MS,
    });
    const both = pinned("both", ["b"], { maxRuntimeMs: HOUR_MS });
    const onB = (id: string, hours: number, submittedAtMs: number) =>
      pinned(id, ["b"], { maxRuntimeMs: hours * HOUR_MS, submittedAtMs, priority: -1 });
    const given = at({ nodes, running: [firm("a"), firmB] }, [
      urgent,
      { ...both, request: { ...both.request, gpus: 2 } },
      onB("long", 3, 1),
      onB("short", 1, 2),
    ]);
    const { starts, reservations } = schedule(given);
    // Long would run past the second reservation, though not past the first.
    expect(reservations.map(({ startAtMs }) => startAtMs)).toEqual([5 * HOUR_MS, 2 * HOUR_MS]);
    expect(starts.map(({ entry }) => entryKey(entry))).toEqual(["short"]);
  });
});

describe("the ranked jobs", () => {
  const late = [1, 2, 3].map((n) => pinned(`a${n}`, ["a"], { submittedAtMs: n }));
  const broad = queued("broad", { submittedAtMs: 9 });
  const given = at({ nodes: hosts("a", "b"), running: [firm("a"), low("b")] }, [...late, broad]);

  it("contain those of the same level that a reservation passes over, before it", () => {
    const plan = schedule(given);
    expect(plan.reservations.map(({ entry }) => entryKey(entry))).toEqual(["a1", "broad"]);
    expect(plan.ranked.map(entryKey)).toEqual(["a1", "a2", "a3", "broad"]);
    const lower = { ...broad, priority: -1 };
    expect(schedule({ ...given, queue: [...late, lower] }).ranked.map(entryKey)).toEqual([
      "a1",
      "broad",
    ]);
  });

  it("keep their order while shares change and other jobs arrive", () => {
    const next = advance(given, schedule(given), NOW_MS + 1_000);
    // Their project holds nothing, and they are older.
    const newcomers = ["n1", "n2"].map((id) => queued(id, { project: "p2" }));
    const plan = schedule({ ...next, queue: [...newcomers, ...next.queue] });
    expect(plan.ranked.map(entryKey)).toEqual(["a1", "a2", "a3", "broad"]);
    expect(plan.preemptions).toEqual([]);
  });

  it("start with a reservation of an earlier version, which has no rank", () => {
    const held = { ...broad, reservedStartMs: 5 * HOUR_MS };
    const { reservations } = schedule({ ...given, queue: [...late, held] });
    expect(reservations[0]?.entry).toEqual(jobEntry("broad"));
  });

  it(`have at most ${MAX_PROMISES} reservations`, () => {
    const ids = Array.from({ length: MAX_PROMISES + 3 }, (_, n) => `n${n}`);
    const busy = ids.map((id) => low(id));
    const each = ids.map((id, n) => pinned(`on-${id}`, [id], { submittedAtMs: n }));
    const plan = schedule(at({ nodes: hosts(...ids), running: busy }, each));
    expect(plan.reservations).toHaveLength(MAX_PROMISES);
    expect(plan.preemptions).toHaveLength(MAX_PROMISES);
    expect(plan.ranked.map(entryKey)).toEqual(
      each.slice(0, MAX_PROMISES).map(({ entry }) => entryKey(entry)),
    );
  });

  it("exclude a reservation that would pass over too many", () => {
    const many = Array.from({ length: 80 }, (_, n) => pinned(`a${n}`, ["a"], { submittedAtMs: n }));
    const full = schedule({ ...given, queue: [...many, { ...broad, submittedAtMs: 99 }] });
    expect(full.ranked.map(entryKey)).toEqual(["a0"]);
    expect(full.preemptions).toEqual([]);
  });
});

describe("a reservation after another, of cluster-wide resources", () => {
  const storage = (storageMb: number): SharedAmounts => ({ storageMb, places: new Map() });
  const wants = (storageMb: number, shards = 0, placesPerShard = 1) => {
    return { shared: { storageMb, shards, placesPerShard } };
  };
  const nodes = hosts("a", "b", "c");
  const busy = [firm("a"), low("b")];
  const urgent = pinned("urgent", ["a"], { priority: 9, ...wants(4) });
  const other = (change: object) => pinned("other", ["b"], change);
  const shared = (free: SharedAmounts) => ({ shared: { limit: free, free } });
  const givenWith = (free: SharedAmounts, queue: readonly QueuedJob[]) =>
    at({ nodes, running: busy, ...shared(free) }, queue);

  it("exists if there is enough for all, and then backfill leaves it for both", () => {
    expect(victims(givenWith(storage(6), [urgent, other(wants(3))]))).toEqual([]);
    const queue = [urgent, other(wants(3)), pinned("short", ["c"], { priority: -9, ...wants(2) })];
    const plan = schedule(givenWith(storage(8), queue));
    expect(plan.preemptions.map(({ forEntry }) => entryKey(forEntry))).toEqual(["other"]);
    expect(plan.starts).toEqual([]);
    const roomy = schedule(givenWith(storage(9), queue));
    expect(roomy.starts.map(({ entry }) => entryKey(entry))).toEqual(["short"]);
  });

  it("of shards exists if each finds its server in any order of the jobs", () => {
    const places = (...free: number[]) => ({
      storageMb: 0,
      places: new Map(free.map((count, n) => [`s${n}`, count])),
    });
    const first = { ...urgent, ...wants(0, 1, 4) };
    const second = other(wants(0, 1, 5));
    // The second on the first server leaves the first one the other; not the other way around.
    expect(victims(givenWith(places(5, 4), [first, second]))).toEqual([]);
    expect(victims(givenWith(places(8, 5), [first, second]))).toEqual(["low-b for other"]);
  });

  it("waits for its resources if no earlier job wants any of the same", () => {
    const holder = { ...low("b"), shared: storage(3) };
    const snapshot = { nodes, running: [firm("a"), holder], ...shared(storage(0)) };
    const plain = pinned("urgent", ["a"], { priority: 9 });
    expect(victims(at(snapshot, [plain, other(wants(3))]))).toEqual(["low-b for other"]);
  });
});
