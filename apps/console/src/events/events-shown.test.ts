import type { ClusterEvent } from "@heddle/contracts/api/events";
import { expect, test } from "vitest";
import { KeptEvents } from "./events-shown.ts";

const event = (id: string, name: string, state = "running") =>
  ({ id, type: "job", name, state, job_id: `job_${id}`, project: "p" }) as ClusterEvent;

const eventsShown = (
  kept: readonly ClusterEvent[],
  live: readonly ClusterEvent[],
  wanted: string,
) => new KeptEvents(kept, wanted).withLive(live);

test("events: kept and live ones are shown once each, the newest first", () => {
  const kept = [event("1.0", "a"), event("2.0", "b"), event("3.0", "c")];
  const live = [event("4.0", "d"), event("3.0", "c")];
  expect(eventsShown(kept, live, "").map(({ id }) => id)).toEqual(["4.0", "3.0", "2.0", "1.0"]);
});

test("events: the filter finds names, states and ids in any case", () => {
  const kept = [event("1.0", "Train"), event("2.0", "other", "failed")];
  expect(eventsShown(kept, [], "train").map(({ id }) => id)).toEqual(["1.0"]);
  expect(eventsShown(kept, [], "FAILED").map(({ id }) => id)).toEqual(["2.0"]);
  expect(eventsShown(kept, [], "job_2")).toHaveLength(1);
  expect(eventsShown(kept, [], "none")).toEqual([]);
});

test("events: of 50,000 the filter finds those with a text", () => {
  const kept = Array.from({ length: 50_000 }, (_, at) => event(`${at}.0`, `job ${at}`));
  expect(eventsShown(kept, [event("60000.0", "x")], "job 4999")).toHaveLength(11);
});
