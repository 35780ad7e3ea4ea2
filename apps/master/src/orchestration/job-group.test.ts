import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type ReadEvent, readTestEvents } from "../../test/event-reader.ts";
import { MasterGroup } from "../../test/master-group.ts";

let group: MasterGroup;

beforeAll(() => {
  group = new MasterGroup(3);
});
// Restarts what a test has killed.
beforeEach(async () => {
  await group.startMissing();
});
afterAll(() => group.close());

async function submit(master: string, name: string): Promise<string> {
  const reply = await group.change(master, "POST", "/api/v1/jobs", { name, command: "true" });
  if (reply.status !== 202) throw new Error(`${reply.status}: ${await reply.text()}`);
  return ((await reply.json()) as { job_id: string }).job_id;
}

async function stateOf(master: string, id: string): Promise<string | undefined> {
  const reply = await group.request(master, "GET", `/api/v1/jobs/${id}`);
  return ((await reply.json()) as { state?: string }).state;
}

async function names(master: string): Promise<string[]> {
  const reply = await group.change(master, "GET", "/api/v1/jobs?limit=1000&consistency=strong");
  return ((await reply.json()) as { data: { name: string }[] }).data.map((job) => job.name);
}

const followersOf = (leader: string) => group.runningNames.filter((name) => name !== leader);

describe("jobs on three masters", () => {
  // First, so that the stream holds only this test's events.
  // holds: jobs-watch
  it("are watched without gap or repeat over another master after a kill", async () => {
    const leader = await group.leader();
    const watched = followersOf(leader)[0]!;
    const ids: string[] = [];
    for (let n = 0; n < 20; n++) ids.push(await submit(leader, `w${n}`));
    const url = (master: string) => `${group.url(master)}/api/v1/events`;
    const first = await readTestEvents(
      url(watched),
      group.adminKey,
      "0.0",
      (seen) => seen.length >= 13,
    );
    await group.end(watched, "SIGKILL");
    const next = group.runningNames[0]!;
    for (const id of ids) {
      await eventually(async () => (await stateOf(next, id)) === "pending", "it waits");
      await group.change(next, "DELETE", `/api/v1/jobs/${id}`);
    }
    const rest = await readTestEvents(url(next), group.adminKey, first.at(-1)?.id, isAllCancelled);
    const events = [...first, ...rest].filter(({ type }) => type === "job");
    expect(new Set(events.map(({ id }) => id)).size).toBe(events.length);
    for (const id of ids) {
      const states = events.filter(({ data }) => data.job_id === id).map(({ data }) => data.state);
      expect(states).toEqual(["accepted", "pending", "cancelling", "cancelled"]);
    }
    const whole = await readTestEvents(url(next), group.adminKey, "0.0", isAllCancelled);
    expect(whole.filter(({ type }) => type === "job")).toEqual(events);
  });

  // holds: masters-no-change-lost, life-leader-kill
  it("survive the leader's kill right after the 202, and continue under the next", async () => {
    const leader = await group.leader();
    const id = await submit(leader, "kept");
    await group.end(leader, "SIGKILL");
    const next = await group.leader();
    for (const master of group.runningNames) expect(await names(master)).toContain("kept");
    await eventually(async () => {
      return (await stateOf(next, id)) === "pending";
    }, "the next leader has checked it");
  });

  // holds: jobs-concurrent
  it("are all accepted, 200 at once through every master, in one order", async () => {
    const leader = await group.leader();
    const masters = group.runningNames;
    const ids = await Promise.all(
      Array.from({ length: 200 }, (_, n) => submit(masters[n % masters.length]!, `n${n}`)),
    );
    expect(new Set(ids).size).toBe(200);
    const own = async (master: string) => (await names(master)).filter((name) => /^n\d/.test(name));
    const expected = await own(leader);
    expect(expected).toHaveLength(200);
    for (const master of followersOf(leader)) expect(await own(master)).toEqual(expected);
  });

  // holds: jobs-wait
  it("are waited for on a follower, and their streams end with them", async () => {
    const leader = await group.leader();
    const [follower] = followersOf(leader) as [string];
    const id = await submit(leader, "watched");
    await eventually(
      async () => (await stateOf(follower, id)) === "pending",
      "the follower has it",
    );
    const path = `/api/v1/jobs/${id}`;
    const waiting = held(group.request(follower, "GET", `${path}?wait=60`));
    const events = `${group.url(follower)}${path}/events`;
    const stream = held(readTestEvents(events, group.adminKey, undefined, () => false));
    await group.change(leader, "DELETE", path);
    expect(await (await waiting).json()).toMatchObject({ state: "cancelled" });
    expect((await stream).map(({ data }) => data.phase)).toEqual([
      "ACCEPTED",
      "PENDING",
      "CANCELLING",
      "CANCELLED",
    ]);
  });
});

/** Whether the last of the twenty jobs has ended. */
function isAllCancelled(events: readonly ReadEvent[]): boolean {
  return events.filter(({ data }) => data.state === "cancelled").length >= 20;
}
