import { describe, expect, it, onTestFinished } from "vitest";
import type { LogSink } from "../../src/control-plane/event-log/sinks/log-sink.ts";

const timeout = 60_000;

/** A sink that the cases of the port are tried on. */
export interface SinkUnderTest {
  readonly title: string;
  /** Why it cannot be tried here; undefined where it can. */
  readonly why: string | undefined;
  place(): SinkPlace | Promise<SinkPlace>;
}

/** Where a sink copies events to, empty at first. */
export interface SinkPlace {
  open(): LogSink;
  /** One that the place refuses, as for a wrong key. */
  refused(): LogSink;
  /** What none of its names and errors may have. */
  readonly secret: string;
  /** The stored texts, in the order in which a reader finds them. */
  stored(): Promise<readonly string[]>;
}

/** An event at that sequence, with characters of several bytes. */
function eventText(sequence: number, text = "\u6f22".repeat(20)): string {
  return JSON.stringify({ sequence: String(sequence), text });
}

/** What every sink keeps. */
export function sinkCases({ title, why, place: newPlace }: SinkUnderTest): void {
  if (why !== undefined) console.log(`${title} is not tested: ${why}`);
  describe.skipIf(why !== undefined)(title, { timeout }, () => {
    it("what is written is stored as it was, in order, once the write ends", async () => {
      const place = await newPlace();
      const sink = opened(place);
      for (const first of [0, 3, 4]) {
        const count = first === 3 ? 1 : 3;
        await sink.write(batch(first, count));
        expect(sequences(await place.stored()).at(-1)).toBe(first + count - 1);
        if (sink.next) expect(await sink.next()).toBe(first + count);
      }
      const wanted = Array.from({ length: 7 }, (_, at) => eventText(at));
      expect(await place.stored()).toEqual(wanted);
    });

    it("large events and large batches are whole", async () => {
      const place = await newPlace();
      const large = { first: 1_000, texts: [eventText(1_000, "x".repeat(100_000))] };
      const sink = opened(place);
      await sink.write(large);
      await sink.write(batch(1_001, 200));
      const stored = await place.stored();
      expect(stored).toHaveLength(201);
      expect(stored[0]).toBe(large.texts[0]);
      expect(stored.at(-1)).toBe(eventText(1_200));
    });

    it("after a restart it continues, and a sink that knows its place says it", async () => {
      const place = await newPlace();
      const before = opened(place);
      await before.write(batch(0, 5));
      await before.close();
      const after = opened(place);
      if (after.next) expect(await after.next()).toBe(5);
      await after.write(batch(5, 2));
      expect(sequences(await place.stored())).toEqual([0, 1, 2, 3, 4, 5, 6]);
    });

    it("events that come again keep their order, and none is missing", async () => {
      const place = await newPlace();
      const sink = opened(place);
      await sink.write(batch(0, 4));
      await sink.write(batch(2, 4));
      expect([...new Set(sequences(await place.stored()))]).toEqual([0, 1, 2, 3, 4, 5]);
    });

    it("a place that refuses is an error without a secret, and nothing counts", async () => {
      const place = await newPlace();
      const sink = place.refused();
      onTestFinished(() => sink.close());
      const written = sink.write(batch(0, 1));
      await expect(written).rejects.toThrow();
      const said = await written.catch((error: unknown) => String(error));
      expect(`${sink.name} ${said}`).not.toContain(place.secret);
      expect(await place.stored()).toEqual([]);
    });
  });
}

function opened(place: SinkPlace): LogSink {
  const sink = place.open();
  onTestFinished(() => sink.close());
  return sink;
}

function batch(first: number, count: number) {
  return { first, texts: Array.from({ length: count }, (_, at) => eventText(first + at)) };
}

function sequences(texts: readonly string[]): number[] {
  return texts.map((text) => Number((JSON.parse(text) as { sequence: string }).sequence));
}
