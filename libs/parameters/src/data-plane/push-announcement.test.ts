import { expect, test } from "vitest";
import { PushReplySink, pushAnswer, pushReplyChunk, readPush } from "./push-announcement.ts";

const PUSH = {
  rank: 0,
  clock: 1,
  weight: 1,
  learningRate: 1,
  squares: 0,
  plan: "p",
  sources: ["unix:/a", "tcp:127.0.0.1:1"],
};

test("push: is read as it was sent; a wrong rank, clock or source is refused", () => {
  expect(readPush(PUSH)).toEqual(PUSH);
  for (const wrong of [
    { rank: "0" },
    { rank: -1 },
    { clock: 1.5 },
    { clock: undefined },
    { sources: undefined },
    { sources: [3] },
  ]) {
    expect(() => readPush({ ...PUSH, ...wrong })).toThrow(/a push needs a rank and a clock/);
  }
});

test.each(["unix", ""])("answer: has the path %j, over both paths", (path) => {
  const sink = new PushReplySink();
  const { bytes, version, pieces } = pushAnswer({ version: 3, path });
  sink.begin({ version, bytes });
  for (const piece of pieces) sink.copy(piece);
  expect([version, sink.path]).toEqual([3, path]);
  const chunk = pushReplyChunk(3, path);
  sink.begin({ version: chunk.version, bytes: chunk.totalBytes });
  sink.copy(chunk.data);
  expect([chunk.version, sink.path]).toEqual([3, path]);
});

test("answer: one that is longer than a path is of another version", () => {
  const sink = new PushReplySink();
  expect(() => sink.begin({ version: 1, bytes: 4096 })).toThrow(/run one version/);
});
