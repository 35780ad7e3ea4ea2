// holds: bound-list-steps

import { createSecretKey } from "node:crypto";
import { Grants } from "@heddle/auth/access/grants";
import { jobOperations } from "@heddle/contracts/api/job-operations";
import { EventLog } from "@heddle/control/jobs/index/event-log";
import { SubmissionOrder } from "@heddle/control/jobs/index/submission-order";
import type { EventRecord, JobRecord } from "@heddle/control/jobs/records/records";
import { jobSpec } from "@heddle/control/jobs/testing/specs";
import type { FastifyReply } from "fastify";
import { beforeEach, expect, test } from "vitest";
import { endTurnsAfterEachStep, TurnReads } from "../../../test/counted-turns.ts";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { EventWatch } from "./event-watch.ts";
import { JobList } from "./job-list.ts";

const COUNT = 100_000;
const MAX_LABELS = 16;
/** Reads of labels of jobs, or of events, in one turn. */
const MAX_READS = 1_000;

const reads = new TurnReads();
const control = clusterOf(COUNT);

const ADMIN = { grants: new Grants().allow(["*"], undefined), scopes: ["*"] };

beforeEach(endTurnsAfterEachStep);

/** Jobs with a label, of which the first one submitted has another value. */
function clusterOf(count: number): ControlPlane {
  const jobs = new Map<string, JobRecord>();
  const specs = new Map<string, ReturnType<typeof jobSpec>>();
  const submitted = new SubmissionOrder();
  for (let at = 1; at <= count; at++) {
    const id = `j${at}`;
    const times = { submittedIndex: at, submittedAtMs: at, sinceMs: at };
    const job = { id, name: id, state: "pending", tasks: 1, ...times } as JobRecord;
    jobs.set(id, job);
    specs.set(id, reads.counted({ ...jobSpec(), labels: { a: at === 1 ? "z" : "b" } }, "labels"));
    submitted.add(job);
  }
  const events = new EventLog(
    Array.from({ length: count }, (_, at) => {
      const what = { type: "job", jobId: at === 0 ? "j1" : "j2", state: "pending" };
      return reads.counted({ index: at + 1, ordinal: 0, atMs: 1, what } as EventRecord, "what");
    }),
  );
  return { state: { jobs, specs, nodes: new Map() }, jobs: { submitted, events } } as never;
}

function list(query: object) {
  const parsed = jobOperations.list.query.parse(query);
  const jobs = new JobList(
    control,
    { of: () => undefined },
    createSecretKey(Buffer.from("pepper")),
  );
  return reads.during(() => jobs.page(parsed, () => true));
}

test("list of jobs: the worst filters examine 100,000 jobs in bounded steps", async () => {
  const label = [...Array(MAX_LABELS - 1).fill("a"), "a=z"];
  const { data, has_more } = await list({ label, limit: "1" });
  expect(data.map(({ id }) => id)).toEqual(["j1"]);
  expect(has_more).toBe(false);
  expect(reads.all).toBeGreaterThan(COUNT * MAX_LABELS);
  expect(reads.longest).toBeLessThan(MAX_READS);
});

test("list of jobs: a page ends at its end, and its cursor continues from there", async () => {
  const label = "a=b";
  const first = await list({ label, limit: "2" });
  expect(first.data.map(({ id }) => id)).toEqual([`j${COUNT}`, `j${COUNT - 1}`]);
  expect(reads.all).toBeLessThan(MAX_READS);
  const next = await list({ label, limit: "2", cursor: first.next_cursor });
  expect(next.data.map(({ id }) => id)).toEqual([`j${COUNT - 2}`, `j${COUNT - 3}`]);
  expect(reads.all).toBeLessThan(MAX_READS);
});

test("list of jobs: a name of an object's own methods is no label", async () => {
  const { data } = await list({ label: ["a=z", "toString"] });
  expect(data).toEqual([]);
});

test("events of a job: 100,000 events are read in bounded steps", async () => {
  const watch = new EventWatch(control, {} as never, {} as never);
  const sent: { data: readonly { job_id: string }[] }[] = [];
  const reply = { send: (page: (typeof sent)[number]) => sent.push(page) };
  await reads.during(() =>
    watch.answer({
      request: { headers: {}, caller: ADMIN } as never,
      reply: reply as unknown as FastifyReply,
      query: { consistency: "stale" },
      jobId: "j1",
    }),
  );
  expect(sent[0]?.data.map(({ job_id }) => job_id)).toEqual(["j1"]);
  expect(reads.all).toBeGreaterThan(COUNT);
  expect(reads.longest).toBeLessThan(MAX_READS);
});
