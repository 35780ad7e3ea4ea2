import { getEventListeners, once } from "node:events";
import { type AddressInfo, connect, createServer, Socket } from "node:net";
import { AppError } from "@heddle/base/errors";
import { ownSocketPath } from "@heddle/base/temporary-socket";
import { eventually } from "@heddle/base/testing/eventually";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import { DataConnection } from "./data-connection.ts";
import { dataHelloFrame, HEAD_BYTES, requestFrame } from "./data-frames.ts";
import { type DataAnswer, DataListener, type DataListenerOptions } from "./data-listener.ts";

const TOKEN = new Uint8Array(32).fill(7);
const never = new AbortController().signal;
const opened: { close(): void }[] = [];

afterEach(() => {
  for (const each of opened.splice(0)) each.close();
});

/** A listener at a socket file with the given answers, and its refusals. */
async function listening(answer: DataListenerOptions["answer"]) {
  const refused: string[] = [];
  const listener = new DataListener({
    token: TOKEN,
    answer,
    onRefused: (why) => refused.push(why),
  });
  opened.push(listener);
  const path = ownSocketPath("data");
  return { listener, refused, path, target: await listener.listenUnix(path) };
}

async function connected(target: string, token = TOKEN): Promise<DataConnection> {
  const connection = await DataConnection.open(target, token, never);
  opened.push(connection);
  return connection;
}

/** Takes at most `most` bytes at a time. */
function sinkOf(most = Number.POSITIVE_INFINITY) {
  const got: number[] = [];
  const memory = new Uint8Array(2 ** 20);
  return {
    got,
    begin: () => undefined,
    space: () => memory.subarray(0, Math.min(most, memory.length)),
    filled: (bytes: number) => void got.push(...memory.subarray(0, bytes)),
  };
}

const answerOf = (...pieces: Uint8Array[]): DataAnswer => {
  return { version: 3, bytes: pieces.reduce((sum, { length }) => sum + length, 0), pieces };
};

test("data: an ended request leaves no listener on its signal", async () => {
  const { target } = await listening(async () => answerOf(Uint8Array.of(1)));
  const connection = await connected(target);
  const { signal } = new AbortController();
  for (let n = 0; n < 3; n++) await connection.request({ n }, sinkOf(), signal);
  expect(getEventListeners(signal, "abort")).toEqual([]);
});

test("data: requests of one connection get their answers in turn, then released", async () => {
  const asked: object[] = [];
  let released = 0;
  const { target } = await listening(async (request) => {
    asked.push(request);
    const answer = answerOf(Uint8Array.of(1, 2), Uint8Array.of(asked.length));
    return { ...answer, release: () => released++ };
  });
  const connection = await connected(target);
  for (const n of [1, 2]) {
    const sink = sinkOf(1);
    expect(await connection.request({ n }, sink, never)).toMatchObject({ version: 3, bytes: 3 });
    expect(sink.got).toEqual([1, 2, n]);
  }
  expect(asked).toEqual([{ n: 1 }, { n: 2 }]);
  await expect.poll(() => released).toBe(2);
});

test("data: short and long pieces arrive whole and in order, over TCP as well", async () => {
  const sizes = [10, 40_000, 1, 0, 5_000_000, 32 * 1024, 3, ...Array<number>(700).fill(1_000)];
  const pieces = sizes.map((size, i) => new Uint8Array(size).fill(i % 251));
  const { listener } = await listening(async () => answerOf(...pieces));
  const connection = await connected(await listener.listenTcp("127.0.0.1"));
  const whole = Buffer.concat(pieces);
  const memory = new Uint8Array(whole.length + 10);
  let at = 0;
  await connection.request(
    {},
    {
      begin: ({ bytes }) => expect(bytes).toBe(whole.length),
      space: () => memory.subarray(at),
      filled: (bytes) => {
        at += bytes;
      },
    },
    never,
  );
  expect(at).toBe(whole.length);
  expect(whole.equals(memory.subarray(0, at))).toBe(true);
});

test("data: short pieces are written together, about half a MiB at a time", async () => {
  const pieces = Array.from({ length: 1_500 }, () => new Uint8Array(1_000));
  const { target } = await listening(async () => answerOf(...pieces));
  const connection = await connected(target);
  const write = vi.spyOn(Socket.prototype, "write");
  onTestFinished(() => write.mockRestore());
  const sink = { begin: () => undefined, space: () => new Uint8Array(2 ** 16), filled: () => {} };
  await connection.request({}, sink, never);
  const lengths = write.mock.calls.map(([bytes]) => bytes.length);
  expect(lengths.filter((length) => length >= 1_000)).toEqual([525_000, 525_000, 450_000]);
});

test("data: an answer without bytes ends with its head", async () => {
  const { target } = await listening(async () => answerOf());
  const connection = await connected(target);
  expect(await connection.request({}, sinkOf(), never)).toMatchObject({ version: 3, bytes: 0 });
});

test("data: a refusal has its code, and the connection stays open", async () => {
  let isRefused = true;
  const { target } = await listening(async () => {
    if (isRefused) throw new AppError("not_found", "none is here");
    return answerOf(Uint8Array.of(9));
  });
  const connection = await connected(target);
  await expect(connection.request({}, sinkOf(), never)).rejects.toMatchObject({
    code: "not_found",
    message: "none is here",
  });
  expect(connection.open).toBe(true);
  isRefused = false;
  const sink = sinkOf();
  await connection.request({}, sink, never);
  expect(sink.got).toEqual([9]);
});

test("data: a peer without the token is closed, counted, and not served", async () => {
  let asked = 0;
  const { listener, refused, target } = await listening(async () => {
    asked++;
    return answerOf();
  });
  const other = await connected(target, new Uint8Array(32).fill(8));
  await expect(other.request({}, sinkOf(), never)).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringMatching(/was the job token another\?/),
  });
  expect([listener.unauthenticated, refused, asked]).toEqual([1, ["unauthenticated"], 0]);
});

test("data: a peer of another protocol is closed and counted", async () => {
  const { listener, refused, path } = await listening(async () => answerOf());
  const socket = connect(path);
  const closed = once(socket, "close");
  socket.resume().write(`GET / HTTP/1.1\r\n${" ".repeat(40)}`);
  await closed;
  expect([listener.unauthenticated, refused]).toEqual([1, ["unauthenticated"]]);
});

test("data: with a later attempt's token earlier connections are closed", async () => {
  const { listener, target } = await listening(async () => answerOf());
  const before = await connected(target);
  await before.request({}, sinkOf(), never);
  const later = new Uint8Array(32).fill(9);
  listener.changeToken(later);
  await expect.poll(() => before.open).toBe(false);
  await expect(before.request({}, sinkOf(), never)).rejects.toMatchObject({ code: "unavailable" });
  await (await connected(target, later)).request({}, sinkOf(), never);
  const again = await connected(target);
  await expect(again.request({}, sinkOf(), never)).rejects.toThrow();
  expect(listener.unauthenticated).toBe(1);
});

/** A raw connection that has sent its hello. */
async function raw(path: string): Promise<Socket> {
  const socket = connect(path);
  opened.push({ close: () => socket.destroy() });
  await once(socket, "connect");
  socket.write(dataHelloFrame(TOKEN));
  return socket;
}

/** A frame of a request with any bytes. */
function frameOf(body: string, length = Buffer.byteLength(body)): Buffer {
  const head = Buffer.alloc(4);
  head.writeUInt32LE(length);
  return Buffer.concat([head, Buffer.from(body)]);
}

test.each([
  ["no JSON", frameOf("{")],
  ["no object", frameOf("3")],
  ["null", frameOf("null")],
  ["one byte too long", frameOf("", 4097)],
])("data: a request that is %s ends its connection and is counted", async (_, frame) => {
  const { refused, path } = await listening(async () => answerOf());
  const socket = await raw(path);
  socket.write(frame);
  await once(socket, "close");
  expect(refused).toEqual(["invalid"]);
});

test("data: a request of the greatest length is answered", async () => {
  const { refused, path } = await listening(async (request) =>
    answerOf(Buffer.from(String(JSON.stringify(request).length))),
  );
  const socket = await raw(path);
  socket.write(frameOf(JSON.stringify({ a: "x".repeat(4096 - 8) })));
  const [answer] = (await once(socket, "data")) as [Buffer];
  expect(answer.subarray(HEAD_BYTES).toString() || "4096").toBe("4096");
  expect(refused).toEqual([]);
});

test("data: requests that come in pieces or together are each answered", async () => {
  const asked: unknown[] = [];
  const { path } = await listening(async (request) => {
    asked.push((request as { n: number }).n);
    return answerOf();
  });
  const socket = await raw(path);
  const [first, ...others] = [1, 2, 3].map((n) => requestFrame({ n }));
  for (const byte of first ?? []) socket.write(Uint8Array.of(byte));
  socket.write(Buffer.concat(others));
  await expect.poll(() => asked).toEqual([1, 2, 3]);
});

test("data: a peer that hangs up aborts its request, and nothing is kept", async () => {
  const aborted = Promise.withResolvers<unknown>();
  const { target } = await listening((_, signal) => {
    signal.addEventListener("abort", () => aborted.resolve(signal.reason));
    return new Promise<DataAnswer>(() => undefined);
  });
  const connection = await connected(target);
  const asked = connection.request({}, sinkOf(), never);
  asked.catch(() => undefined);
  await new Promise((resolve) => setTimeout(resolve, 5));
  connection.close();
  expect(await aborted.promise).toMatchObject({ code: "cancelled" });
  await expect(asked).rejects.toMatchObject({ code: "cancelled" });
});

test("data: an answer is released also where its receiver is gone", async () => {
  const released = Promise.withResolvers<void>();
  const { path } = await listening(async () => {
    return { ...answerOf(new Uint8Array(2 ** 24)), release: () => released.resolve() };
  });
  const socket = await raw(path);
  socket.write(requestFrame({}));
  await once(socket, "data");
  socket.destroy();
  await released.promise;
});

test("data: an answer is released when its receiver ends and reads no more", async () => {
  let isReleased = false;
  const { path } = await listening(async () => {
    const release = () => {
      isReleased = true;
    };
    return { ...answerOf(new Uint8Array(2 ** 24)), release };
  });
  const socket = await raw(path);
  socket.write(requestFrame({}));
  await once(socket, "data");
  socket.pause();
  socket.end();
  // The limit of a stalled answer, 20 s, would end it too.
  await eventually(() => isReleased, "the answer is released");
});

test("data: an abort ends the request with its reason, and the connection", async () => {
  const { target } = await listening(() => new Promise<DataAnswer>(() => undefined));
  const connection = await connected(target);
  const caller = new AbortController();
  const asked = connection.request({}, sinkOf(), caller.signal);
  caller.abort(new AppError("deadline_exceeded", "too late"));
  await expect(asked).rejects.toMatchObject({ code: "deadline_exceeded" });
  expect(connection.open).toBe(false);
  const next = connection.request({}, sinkOf(), never);
  await expect(next).rejects.toMatchObject({ code: "deadline_exceeded" });
  const again = await connected(target);
  const late = again.request({}, sinkOf(), caller.signal);
  await expect(late).rejects.toMatchObject({ code: "deadline_exceeded" });
});

test("data: a sink that refuses the head or the bytes ends the request with its error", async () => {
  const { target } = await listening(async () => answerOf(new Uint8Array(100)));
  const refuse = () => {
    throw new AppError("invalid_value", "not this");
  };
  for (const sink of [
    { ...sinkOf(), begin: refuse },
    { ...sinkOf(), filled: refuse },
  ]) {
    const connection = await connected(target);
    const asked = connection.request({}, sink, never);
    await expect(asked).rejects.toMatchObject({ code: "invalid_value", message: "not this" });
    expect(connection.open).toBe(false);
  }
});

test("data: one request at a time; an unexpected answer ends the connection", async () => {
  const answers: PromiseWithResolvers<DataAnswer>[] = [];
  const { target } = await listening(() => {
    answers.push(Promise.withResolvers());
    return answers.at(-1)?.promise as Promise<DataAnswer>;
  });
  const connection = await connected(target);
  const first = connection.request({}, sinkOf(), never);
  expect(() => connection.request({}, sinkOf(), never)).toThrow(/one request at a time/);
  await expect.poll(() => answers.length).toBe(1);
  // More bytes than its head announces.
  answers[0]?.resolve({ ...answerOf(new Uint8Array(64)), bytes: 8 });
  await first;
  await expect.poll(() => connection.open).toBe(false);
  await expect(connection.request({}, sinkOf(), never)).rejects.toMatchObject({
    code: "server_error",
  });
});

test("data: an answer that breaks off is unavailable, without a hint about tokens", async () => {
  const { listener, target } = await listening(async () => {
    return { ...answerOf(new Uint8Array(8)), bytes: 16 };
  });
  const connection = await connected(target);
  const sink = sinkOf();
  const asked = connection.request({}, sink, never);
  asked.catch(() => undefined);
  await expect.poll(() => sink.got.length).toBe(8);
  listener.close();
  await expect(asked).rejects.toMatchObject({
    code: "unavailable",
    message: expect.not.stringMatching(/token/),
  });
});

test("data: a reset is unavailable, and its cause is named", async () => {
  const server = createServer((socket) => {
    socket.once("data", () => socket.write(Buffer.alloc(4), () => socket.resetAndDestroy()));
  });
  server.listen(0, "127.0.0.1");
  opened.push(server);
  await once(server, "listening");
  const connection = await connected(`tcp:127.0.0.1:${(server.address() as AddressInfo).port}`);
  await expect(connection.request({}, sinkOf(), never)).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringMatching(/broke: .*ECONNRESET/),
    cause: { code: "ECONNRESET" },
  });
});

test("data: a receiver that does not read holds up the pieces, not the memory", async () => {
  const all = 64;
  let taken = 0;
  const pieces = {
    *[Symbol.iterator]() {
      while (taken < all) {
        taken++;
        yield new Uint8Array(2 ** 20);
      }
    },
  };
  const { path } = await listening(async () => ({ version: 1, bytes: all * 2 ** 20, pieces }));
  const socket = await raw(path);
  socket.pause();
  socket.write(requestFrame({}));
  await expect.poll(() => taken).toBeGreaterThan(0);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(taken).toBeLessThan(all / 4);
  let read = 0;
  socket.on("data", (bytes: Buffer) => {
    read += bytes.length;
  });
  socket.resume();
  await expect.poll(() => read).toBeGreaterThanOrEqual(all * 2 ** 20);
});

test("data: no listener is unavailable, and an invalid address is invalid", async () => {
  const open = (target: string) => DataConnection.open(target, TOKEN, never);
  await expect(open(`unix:${ownSocketPath("data")}`)).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringMatching(/cannot connect to unix:\S+: connect ENOENT/),
  });
  for (const wrong of ["tcp:host", "udp:host:1", "unix:", "tcp:host:port"]) {
    await expect(open(wrong)).rejects.toMatchObject({ code: "invalid_value" });
  }
});

test("data: a closed listener accepts no connection and closes open ones", async () => {
  const { listener, path, target } = await listening(async () => answerOf());
  const connection = await connected(target);
  await connection.request({}, sinkOf(), never);
  listener.close();
  await expect.poll(() => connection.open).toBe(false);
  await expect(DataConnection.open(target, TOKEN, never)).rejects.toThrow(/cannot connect/);
  const next = new DataListener({ token: TOKEN, answer: async () => answerOf() });
  opened.push(next);
  await next.listenUnix(path);
  await (await connected(target)).request({}, sinkOf(), never);
});

test("data: only a peer without a hello within five seconds is closed", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    const { path, target } = await listening(async () => answerOf());
    const silent = connect(path);
    opened.push({ close: () => silent.destroy() });
    await once(silent, "connect");
    const connection = await connected(target);
    await connection.request({}, sinkOf(), never);
    vi.advanceTimersByTime(4_999);
    expect(silent.destroyed).toBe(false);
    const closed = once(silent, "close");
    silent.resume();
    vi.advanceTimersByTime(1);
    await closed;
    await connection.request({}, sinkOf(), never);
    expect(connection.open).toBe(true);
  } finally {
    vi.useRealTimers();
  }
});
