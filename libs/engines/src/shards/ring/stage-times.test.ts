import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { FrameMeter } from "./frame-meter.ts";
import { frameParts, type StageFrame } from "./stage-frame.ts";
import { StageTimes } from "./stage-times.ts";

test("stage times: steps follow each other, and pauses of requests are no bubbles", () => {
  const times = new StageTimes();
  times.arrived(0);
  times.left(5);
  // Idle for 3 ms, then two frames that wait for each other.
  times.arrived(8);
  times.arrived(9);
  times.left(10);
  times.left(14);
  times.arrived(5_000);
  times.left(5_001);
  expect(times.load).toMatchObject({ steps: 4, busyMs: 5 + 2 + 4 + 1, idleMs: 3 });
  // Of the last stage, which begins a frame by itself.
  times.left(5_002);
  times.arrived(5_003);
  times.restart();
  times.left(5_010);
  expect(times.load.steps).toBe(4);
});

test("stage times: ways between workers have a mean", () => {
  const times = new StageTimes();
  times.hopped(4, 2);
  times.hopped(4, -1);
  expect(times.load).toMatchObject({ hops: 8, hopMicros: 2_000 });
});

test("frame meter: frames are counted however their bytes are cut", () => {
  const random = seededRandom(7);
  const below = (end: number) => Math.floor(random() * end);
  const frames = Array.from({ length: 40 }, (_, step): StageFrame => {
    const rows = below(6);
    return {
      epoch: 1,
      step,
      status: 0,
      dtype: step % 2 === 0 ? "f32" : "bf16",
      micros: 0,
      adapter: 0,
      scale: 0,
      changes: new Int32Array(4 * below(3)),
      rows: new Int32Array(3 * rows),
      hidden: new Float32Array(rows * 8),
    };
  });
  const bytes = Buffer.concat(frames.flatMap(frameParts));
  const meter = new FrameMeter();
  let count = 0;
  for (let at = 0; at < bytes.length; ) {
    const end = at + 1 + below(80);
    count += meter.push(bytes.subarray(at, end));
    at = end;
  }
  expect(count).toBe(40);
  expect(() => meter.push(Buffer.alloc(64))).toThrow(/frame between stages/);
});
