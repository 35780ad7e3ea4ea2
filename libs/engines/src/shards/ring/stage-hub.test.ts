// holds: shard-epochs, shard-flow

import { type Duplex, duplexPair } from "node:stream";
import { setImmediate as turn } from "node:timers/promises";
import { eventually } from "@heddle/base/testing/eventually";
import { expect, onTestFinished, test } from "vitest";
import { FrameSplitter } from "./frame-splitter.ts";
import { endsEpoch, frameEpoch, frameParts, readFrame, STAGE_GIVES } from "./stage-frame.ts";
import { StageHub } from "./stage-hub.ts";

/** What the hub may hold beside the buffers of its streams. */
const MAX_HELD_BYTES = 6 * 2 ** 20;

/** A frame of one row. */
function frameOf(epoch: number, step: number, numbers = 1, status = 0): Buffer {
  const rest = { status, micros: 0, adapter: 0, scale: 0, dtype: "f32" } as const;
  const row = { changes: new Int32Array(0), rows: new Int32Array(3) };
  return Buffer.concat(
    frameParts({ epoch, step, ...rest, ...row, hidden: new Float32Array(numbers) }),
  );
}

/** The frames that come from a stream. */
function framesFrom(stream: Duplex): Buffer[] {
  const splitter = new FrameSplitter();
  const frames: Buffer[] = [];
  stream.on("data", (bytes: Uint8Array) => frames.push(...splitter.push(bytes)));
  return frames;
}

const isLost = (frame: Buffer | undefined) =>
  frame !== undefined && endsEpoch(readFrame(new Uint8Array(frame).buffer));

/** A hub between a last stage and another one, which is each time the next of these. */
function hubOver(...stages: Duplex[]) {
  const [last, link] = duplexPair();
  const connect = async () => [stages.shift()!];
  const hub = new StageHub(link, { connect, connectMoved: connect });
  onTestFinished(() => void link.destroy());
  return { hub, last };
}

test.each([
  ["takes nothing", false],
  ["has not joined", true],
])("stage hub: the last stage waits where the first one %s", async (_, isLate) => {
  const [stage, far] = duplexPair();
  const joins = Promise.withResolvers<void>();
  const [last, link] = duplexPair();
  new StageHub(link, { connect: () => joins.promise.then(() => [stage]) });
  onTestFinished(() => void link.destroy());
  if (!isLate) joins.resolve();
  const returned = framesFrom(last);
  const frames = Array.from({ length: 40 }, (_, step) => frameOf(1, step, 2 ** 18));
  const bytes = frames.reduce((sum, { length }) => sum + length, 0);
  for (const frame of frames) last.write(frame);
  for (let turns = 0; turns < 100; turns++) await turn();
  expect(bytes - last.writableLength).toBeLessThan(MAX_HELD_BYTES);
  joins.resolve();
  far.pipe(far);
  await eventually(() => returned.length === frames.length);
  expect(Buffer.concat(returned).equals(Buffer.concat(frames))).toBe(true);
});

test("stage hub: an adapter's bytes do not come back", async () => {
  const [stage, far] = duplexPair();
  const { last } = hubOver(stage);
  far.pipe(far);
  const returned = framesFrom(last);
  last.write(frameOf(1, 0, 2 ** 18, STAGE_GIVES));
  last.write(frameOf(1, 1, 2));
  await eventually(() => returned.length === 2);
  const [given, decoded] = returned.map((frame) => readFrame(new Uint8Array(frame).buffer));
  expect(given).toMatchObject({ epoch: 1, step: 0, status: STAGE_GIVES });
  expect([given?.rows.length, given?.hidden.length]).toEqual([0, 0]);
  expect(decoded?.hidden.length).toBe(2);
});

test("stage hub: frames that waited for a move are dropped where it ends their epoch", async () => {
  const [[leaving, farLeaving], [moved], [next, farNext]] = [
    duplexPair(),
    duplexPair(),
    duplexPair(),
  ];
  const { hub, last } = hubOver(leaving, moved, next);
  const [answers, gotBefore, got] = [last, farLeaving, farNext].map(framesFrom);
  last.write(frameOf(7, 0));
  await eventually(() => gotBefore!.length === 1);
  hub.move();
  for (let turns = 0; turns < 10; turns++) await turn();
  last.write(frameOf(7, 1));
  for (let turns = 0; turns < 10; turns++) await turn();
  // It waits until the first one has come back, which is lost.
  expect(gotBefore!.length).toBe(1);
  farLeaving.destroy();
  leaving.destroy();
  await eventually(() => isLost(answers![0]));
  last.write(frameOf(8, 0));
  await eventually(() => got!.length > 0);
  expect(got!.map(frameEpoch)).toEqual([8]);
});
