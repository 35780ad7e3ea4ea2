// holds: shard-epochs

import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Random, seededRandom } from "@heddle/base/random";
import { expect, onTestFinished, test } from "vitest";
import { FramePipe } from "./frame-pipe.ts";
import { FrameSplitter } from "./frame-splitter.ts";
import {
  frameBytes,
  frameParts,
  MAX_CHANGES,
  REMOVES,
  readFrame,
  STAGE_FULL,
  STAGE_OK,
  type StageFrame,
} from "./stage-frame.ts";
import { StageRing } from "./stage-ring.ts";
import { StageRunner } from "./stage-runner.ts";

const SEED = Number(process.env["HEDDLE_PROPERTY_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
console.log(`stage ring: HEDDLE_PROPERTY_SEED=${SEED}`);
const random = seededRandom(SEED);
const below = (end: number) => Math.floor(random() * end);
const integers = (count: number) => Int32Array.from({ length: count }, () => below(2 ** 31));

function randomFrame(of: Random = random): StageFrame {
  const rows = Math.floor(of() * 20);
  const dtype = of() < 0.5 ? "f32" : "bf16";
  const rowLength = of() < 0.5 ? 0 : 1 + Math.floor(of() * 40);
  return {
    epoch: below(2 ** 32),
    step: below(2 ** 32),
    status: below(2),
    micros: below(2 ** 32),
    adapter: below(3),
    scale: Math.fround(of()),
    changes: integers(4 * below(20)),
    rows: integers(3 * rows),
    dtype,
    // Numbers of 8 bits are the same as bf16.
    hidden: Float32Array.from({ length: rows * rowLength }, () =>
      dtype === "f32" ? of() : below(256) - 128,
    ),
  };
}

const bytesOf = (frame: StageFrame) => Buffer.concat(frameParts(frame));

test("stage frame: what was written is read, also piece by piece from a file", () => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-frames-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const frames = Array.from({ length: 50 }, () => randomFrame());
  const path = join(folder, "frames");
  writeFileSync(path, Buffer.concat(frames.map(bytesOf)));
  const descriptor = openSync(path, "r");
  const pipe = new FramePipe(descriptor);
  for (const frame of frames) expect(pipe.read()).toEqual(frame);
  expect(pipe.read()).toBeUndefined();
  closeSync(descriptor);
});

test("stage frame: as bf16 the numbers take half, rounded to the nearest, ties to even", () => {
  const half = 2 ** -8;
  const numbers = [1, 1 + half, 1 + 3 * half, 1 + half * 1.5, -1 - half * 0.9, 24_879, 3.4e38];
  const special = [-0, Number.POSITIVE_INFINITY, Number.NaN];
  const frame = {
    ...randomFrame(),
    rows: integers(3),
    hidden: Float32Array.of(...numbers, ...special),
  };
  const [short, long] = (["bf16", "f32"] as const).map((dtype) => bytesOf({ ...frame, dtype }));
  expect(long!.length - short!.length).toBe(2 * frame.hidden.length);
  const { hidden } = readFrame(new Uint8Array(short!).buffer);
  const rounded = [1, 1, 1 + 4 * half, 1 + 2 * half, -1, 24_832, Number.POSITIVE_INFINITY];
  expect([...hidden]).toEqual([...rounded, ...special]);
});

test("stage frame: a header with a wrong number is refused", () => {
  const bytes = bytesOf(randomFrame());
  expect(frameBytes(bytes)).toBe(bytes.length);
  expect(readFrame(new Uint8Array(bytes).buffer)).toBeDefined();
  // Length, magic, changes, rows, the length of a row and of a number.
  for (const at of [0, 1, 5, 6, 7, 9]) {
    const broken = Buffer.from(bytes);
    broken.writeUInt32LE((broken.readUInt32LE(at * 4) ^ (1 << below(31))) >>> 0, at * 4);
    const isSame = at === 7 && bytes.readUInt32LE(24) === 0;
    if (!isSame) expect(() => frameBytes(broken), `number ${at}`).toThrow(/frame between stages/);
  }
});

test("stage frame: a stream that is cut anywhere gives whole frames again", () => {
  const frames = Array.from({ length: 100 }, () => bytesOf(randomFrame()));
  const stream = Buffer.concat(frames);
  const splitter = new FrameSplitter();
  const got: Buffer[] = [];
  for (let at = 0; at < stream.length; ) {
    const next = at + 1 + below(200);
    got.push(...splitter.push(stream.subarray(at, next)));
    at = next;
  }
  expect(got.map((each) => each.toString("hex"))).toEqual(
    frames.map((f) => Buffer.from(f).toString("hex")),
  );
  expect(() => splitter.push(Buffer.alloc(64))).toThrow(/frame between stages/);
});

/** A stage that records what it does, and adds 1 to each number. */
class RecordingStage {
  readonly done: string[] = [];
  isFull = false;
  /** An adapter that it cannot use. */
  unfit = -1;
  readonly adapters = {
    isEmpty: true,
    take: ({ adapter, rows }: Pick<StageFrame, "adapter" | "rows">) => {
      this.done.push(`take ${adapter} ${rows.join()}`);
    },
    apply: (adapter: number, scale: number) => {
      if (adapter > 0 && adapter !== this.unfit) this.done.push(`apply ${adapter} ${scale}`);
      return adapter !== this.unfit;
    },
  };
  readonly mover = { begin: () => undefined, save: () => undefined, take: () => false };
  #hidden = new Float32Array(0);

  decodeRows(rows: Int32Array, hidden: Float32Array): boolean {
    if (this.isFull) return false;
    this.done.push(`decode ${rows.join()}`);
    const before = hidden.length > 0 ? hidden : new Float32Array(rows.length / 3);
    this.#hidden = before.map((value) => value + 1);
    return true;
  }

  hidden(): Float32Array {
    return this.#hidden;
  }

  remove(...numbers: number[]): void {
    this.done.push(`remove ${numbers.join()}`);
  }

  copy(...numbers: number[]): void {
    this.done.push(`copy ${numbers.join()}`);
  }

  clear(): void {
    this.done.push("clear");
  }
}

const RESIDUAL = { rowLength: 1, dtype: "f32" } as const;

/** A ring through the stages, which takes each frame round as bytes. */
function ringOf(stages: readonly RecordingStage[], late: StageFrame[] = []) {
  const runners = stages.map((stage) => new StageRunner(stage));
  const coming: StageFrame[] = late;
  const sent: StageFrame[] = [];
  const write = (frame: StageFrame) => {
    let going: StageFrame | undefined = readFrame(new Uint8Array(bytesOf(frame)).buffer);
    sent.push(going);
    for (const runner of runners) going = going && runner.run(going);
    if (going) coming.push(going);
  };
  const own = new RecordingStage();
  const ring = new StageRing({ write, read: () => coming.shift() }, RESIDUAL, own);
  return { ring, runners, sent, own };
}

type Rows = ReturnType<typeof batchOf>;

function decode(ring: StageRing, batch: Rows) {
  ring.send(batch);
  return ring.receive(batch);
}

const batchOf = (...rows: readonly [token: number, position: number, sequence: number][]) => ({
  size: rows.length,
  rows: () => Int32Array.from(rows.flat()),
});

test("stage ring: all stages make changes and decode in one order, also many at once", () => {
  const stages = [new RecordingStage(), new RecordingStage(), new RecordingStage()];
  const { ring, own } = ringOf(stages);
  const expected = ["clear"];
  const underWay: Rows[] = [];
  const send = (batch: Rows) => {
    ring.send(batch);
    underWay.push(batch);
    expected.push(`decode ${batch.rows().join()}`);
  };
  const receive = () => {
    const batch = underWay.shift()!;
    expect(ring.receive(batch)).toEqual(Float32Array.of(3));
    own.done.push(`decode ${batch.rows().join()}`);
  };
  for (let i = 0; i < 6_000; i++) {
    const numbers = [below(64), below(64), below(512), below(512)] as const;
    const [a, b, begin, end] = numbers;
    const choice = below(30);
    if (choice === 0) send(batchOf([a, begin, b]));
    else if (choice < 15) {
      ring.copy(a, b, begin, end);
      expected.push(`copy ${numbers.join()}`);
    } else {
      ring.remove(a, begin, end);
      expected.push(`remove ${a},${begin},${end}`);
    }
    if (underWay.length > below(4)) receive();
  }
  send(batchOf([1, 2, 3]));
  while (underWay.length > 0) receive();
  for (const { done } of [...stages, own]) expect(done).toEqual(expected);
});

test("stage ring: changes go out before they are too many for a frame", () => {
  const { ring, sent } = ringOf([new RecordingStage()]);
  for (let i = 0; i < MAX_CHANGES; i++) ring.remove(0, i, i + 1);
  expect(sent).toMatchObject([{ step: 0, rows: new Int32Array(0) }]);
  expect(sent[0]!.changes.length).toBe(4 * MAX_CHANGES);
  expect(sent[0]!.changes[1]).toBe(REMOVES);
});

test("stage ring: rows that a stage has no cells for are taken from all", () => {
  const stages = [new RecordingStage(), new RecordingStage()];
  const { ring } = ringOf(stages);
  stages[1]!.isFull = true;
  expect(decode(ring, batchOf([9, 5, 1], [8, 6, 1], [7, 0, 2]))).toBe("full");
  stages[1]!.isFull = false;
  expect(decode(ring, batchOf([1, 0, 0]))).toEqual(Float32Array.of(2));
  const undone = ["remove 1,5,-1", "remove 2,0,-1", "decode 1,0,0"];
  expect(stages[0]!.done).toEqual(["clear", "decode 9,5,1,8,6,1,7,0,2", ...undone]);
  expect(stages[1]!.done).toEqual(["clear", ...undone]);
});

test("stage ring: adapters are given once, forgotten, and refused for their rows alone", () => {
  const stages = [new RecordingStage(), new RecordingStage()];
  const { ring } = ringOf(stages);
  const adapter = { number: 7, scale: 0.5, read: () => new Uint8Array(16 * 2 ** 20 + 1) };
  const batch = batchOf([9, 5, 1]);
  for (let i = 0; i < 2; i++) {
    ring.send(batch, adapter);
    expect(ring.receive(batch)).toEqual(Float32Array.of(2));
  }
  ring.forget(7);
  stages[1]!.unfit = 8;
  ring.send(batch, { ...adapter, number: 8, read: () => new Uint8Array(1) });
  expect(ring.receive(batch)).toBe("unfit");
  expect(decode(ring, batchOf([1, 0, 0]))).toEqual(Float32Array.of(2));
  const used = ["apply 7 0.5", "decode 9,5,1"];
  const given = ["clear", "take 7 16777216,1,0", "take 7 1,0,0", ...used, ...used];
  const after = ["remove 1,5,-1", "decode 1,0,0"];
  const refused = ["take 7 0,0,0", "take 8 1,0,0"];
  const other = ["apply 8 0.5", "decode 9,5,1"];
  expect(stages[0]!.done).toEqual([...given, ...refused, ...other, ...after]);
  expect(stages[1]!.done).toEqual([...given, ...refused, ...after]);
});

test("stage ring: frames of another epoch are neither served nor taken for answers", () => {
  const stage = new RecordingStage();
  const stale = { ...randomFrame(), epoch: 0 };
  const { ring, runners } = ringOf([stage], [stale]);
  expect(decode(ring, batchOf([1, 0, 0]))).toEqual(Float32Array.of(1));
  expect(runners[0]!.run({ ...stale, step: 3 })).toBeUndefined();
  expect(stage.done).toEqual(["clear", "decode 1,0,0"]);
});

test("stage ring: a missing step, a lost stage and another model's rows end it", () => {
  const { ring, runners, sent } = ringOf([new RecordingStage()]);
  decode(ring, batchOf([1, 0, 0]));
  const { epoch } = sent[0]!;
  const none = {
    micros: 0,
    changes: new Int32Array(0),
    rows: new Int32Array(0),
    adapter: 0,
    scale: 0,
    dtype: "f32" as const,
    hidden: new Float32Array(0),
  };
  const gap = { ...none, epoch, step: 5, status: STAGE_OK };
  expect(() => runners[0]!.run(gap)).toThrow("step 5 came in place of 1");
  const nothing = { write: () => {}, read: () => undefined };
  const lost = new StageRing(nothing, RESIDUAL, new RecordingStage());
  expect(() => decode(lost, batchOf([1, 0, 0]))).toThrow("the stages of the model are gone");
  const wide = ringOf([new RecordingStage()]);
  expect(() => decode(wide.ring, { ...batchOf([1, 0, 0]), size: 2 })).toThrow("of one model");
  const full = {
    ...none,
    epoch: epoch ^ 1,
    step: 0,
    status: STAGE_FULL,
    rows: Int32Array.of(1, 0, 0),
  };
  expect(runners[0]!.run(full)).toMatchObject({ status: STAGE_FULL });
});
