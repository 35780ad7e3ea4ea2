// holds: task-many-on-one-worker

import { expect, test } from "vitest";
import { newLeader, shell, taskId } from "../../test/test-leader.ts";

const count = 64;
/** A worker that does not ask for a renewal in time loses it, and all its tasks with it. */
const leaseMs = 5_000;

test("many tasks: their starts and ends do not keep a worker from its lease", async (context) => {
  const leader = await newLeader(context);
  await leader.startWorker();
  const session = leader.open(1, leaseMs);
  const victim = taskId(0, 1, "job_victim");
  await session.start(shell("sleep 900"), victim);
  const ids = Array.from({ length: count }, (_, rank) => taskId(rank));
  await Promise.all(ids.map((id) => session.lease({ ...shell("sleep 900"), tasks: count }, id)));
  const peers = ids.map((id) => session.status(id)?.rendezvous ?? "");
  for (const task of ids) session.send({ start: { task, peers } });
  await Promise.all(ids.map((id) => session.reaches("running", id)));
  for (const task of ids) {
    session.send({ stop: { task, checkpoint: false, graceMs: 0, why: "cancelled" } });
  }
  const ended = await Promise.all(ids.map((id) => session.reaches("exited", id)));
  expect(new Set(ended.map(({ exit }) => exit?.message))).toEqual(new Set(["stopped: cancelled"]));
  expect(session.status(victim)?.phase).toBe("running");
});
