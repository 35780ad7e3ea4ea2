import fc from "fast-check";
import { expect, test } from "vitest";
import type { EventRecord } from "../records/records.ts";
import { EventLog, type Position, parsePosition, positionText } from "./event-log.ts";

const MAX_EVENTS = 100_000;

function event(index: number, ordinal: number): EventRecord {
  return { index, ordinal, atMs: 0, what: { type: "node", nodeId: "a", state: "ready" } };
}

const ids = (events: Iterable<Position>) => [...events].map(positionText);

test("event log: reads equal those of a plain list", () => {
  const position = fc.record({ index: fc.nat(12), ordinal: fc.nat(3) });
  const step = fc.oneof(
    fc.record({ do: fc.constant("push" as const), by: fc.nat(2) }),
    fc.record({ do: fc.constant("shift" as const) }),
    fc.record({ do: fc.constant("read" as const), position }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const log = new EventLog([]);
      const kept: EventRecord[] = [];
      let last: Position = { index: 1, ordinal: -1 };
      for (const each of steps) {
        if (each.do === "push") {
          const next =
            each.by === 0 ? event(last.index, last.ordinal + 1) : event(last.index + each.by, 0);
          last = next;
          kept.push(next);
          expect(log.push(next)).toBeUndefined();
        } else if (each.do === "shift") expect(log.shift()).toBe(kept.shift());
        else {
          const { index, ordinal } = each.position;
          const isAfter = (other: Position) =>
            other.index > index || (other.index === index && other.ordinal > ordinal);
          expect(ids(log.after(each.position))).toEqual(ids(kept.filter(isAfter)));
          // The position before all events is never compacted below the limit.
          const isBefore = kept[0] !== undefined && isAfter(kept[0]);
          expect(log.isCompacted(each.position)).toBe(isBefore && index > 0);
        }
        expect(log.last).toEqual(kept.at(-1) ?? { index: 0, ordinal: 0 });
      }
    }),
  );
});

test("event log: a read continues in order while events come and the array is cut", () => {
  const log = new EventLog(Array.from({ length: MAX_EVENTS }, (_, at) => event(at + 1, 0)));
  const read: number[] = [];
  for (const { index } of log.after({ index: 50_000, ordinal: 0 })) {
    read.push(index);
    if (index !== 50_001) continue;
    for (let at = 1; at <= 20_000; at++) log.push(event(MAX_EVENTS + at, 0));
  }
  expect(read).toEqual(Array.from({ length: 70_000 }, (_, at) => 50_001 + at));
});

test("event log: the oldest event is dropped at the limit", () => {
  const all = Array.from({ length: MAX_EVENTS }, (_, at) => event(at + 1, 0));
  const log = new EventLog(all.slice(0, -1));
  const start = { index: 0, ordinal: 0 };
  expect(log.isCompacted(start)).toBe(false);
  expect(log.push(all.at(-1)!)).toBeUndefined();
  expect(log.isCompacted(start)).toBe(true);
  expect(log.push(event(MAX_EVENTS + 1, 0))).toBe(all[0]);
  expect(log.isCompacted({ index: 1, ordinal: 0 })).toBe(true);
  expect(log.isCompacted({ index: 2, ordinal: 0 })).toBe(false);
  // Enough are dropped for the array to be cut.
  for (let at = 1; at < 20_000; at++) expect(log.shift()).toBe(all[at]);
  const [oldest] = log.after(start);
  expect(oldest).toBe(all[20_000]);
  expect(log.last).toEqual(event(MAX_EVENTS + 1, 0));
});

test("event log: positions round-trip as text; other text is refused", () => {
  for (const position of [
    { index: 0, ordinal: 0 },
    { index: 1_042, ordinal: 17 },
  ]) {
    expect(parsePosition(positionText(position))).toEqual(position);
  }
  for (const text of ["", "1", "1.", ".1", "1.2.3", "-1.0", "1.0 ", `${"1".repeat(16)}.0`]) {
    expect(parsePosition(text)).toBeUndefined();
  }
});
