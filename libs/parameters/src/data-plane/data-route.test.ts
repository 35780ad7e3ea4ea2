import { AppError } from "@heddle/base/errors";
import { ownSocketPath } from "@heddle/base/temporary-socket";
import { afterEach, expect, test } from "vitest";
import { DataListener, type DataListenerOptions } from "./data-listener.ts";
import { type CopyingSink, DataRoute, type Fetching, parameterChunks } from "./data-route.ts";

const MIB = 2 ** 20;
const TOKEN = new Uint8Array(32).fill(1);
const opened: { close(): void }[] = [];

afterEach(() => {
  for (const each of opened.splice(0)) each.close();
});

test("chunks: of 1 MiB at most, short pieces gathered, each at its offset", () => {
  const pieces = [10, 3 * MIB, MIB - 20, 20, 5].map((size, i) => new Uint8Array(size).fill(i + 1));
  const whole = Buffer.concat(pieces);
  const chunks = [...parameterChunks(7, whole.length, pieces)];
  let offset = 0;
  for (const chunk of chunks) {
    expect(chunk).toMatchObject({ version: 7, offset, totalBytes: whole.length });
    offset += (chunk.data as Uint8Array).length;
  }
  expect(Buffer.concat(chunks.map(({ data }) => data as Uint8Array)).equals(whole)).toBe(true);
  expect(Math.max(...chunks.map(({ data }) => (data as Uint8Array).length))).toBeLessThan(2 * MIB);
});

test("chunks: one where there are no bytes, and none too many", () => {
  expect([...parameterChunks(1, 0, [])]).toHaveLength(1);
  expect([...parameterChunks(1, MIB, [new Uint8Array(MIB)])]).toHaveLength(1);
});

function sinkOf(): CopyingSink & { readonly got: number[] } {
  const got: number[] = [];
  const memory = new Uint8Array(64);
  return {
    got,
    begin: () => undefined,
    space: () => memory,
    filled: (bytes) => void got.push(...memory.subarray(0, bytes)),
    copy: (bytes) => void got.push(...bytes),
    end: () => void got.push(-1),
  };
}

async function listening(answer?: DataListenerOptions["answer"]): Promise<string> {
  const give = async () => ({ version: 2, bytes: 1, pieces: [Uint8Array.of(5)] });
  const listener = new DataListener({ token: TOKEN, answer: answer ?? give });
  opened.push(listener);
  return listener.listenUnix(ownSocketPath("data"));
}

/** The gRPC stream has one chunk of [9] unless the test says otherwise. */
function fetching(targets: readonly string[], change: Partial<Fetching> = {}) {
  const sinks: ReturnType<typeof sinkOf>[] = [];
  const addresses: string[] = [];
  const options: Fetching = {
    targets,
    token: TOKEN,
    request: {},
    sink: () => {
      sinks.push(sinkOf());
      return sinks.at(-1) as CopyingSink;
    },
    overGrpc: async function* (address) {
      addresses.push(address);
      yield { version: 4, offset: 0, totalBytes: 1, data: Buffer.of(9) };
    },
    signal: new AbortController().signal,
    ...change,
  };
  return { options, sinks, addresses };
}

function route(): DataRoute {
  const made = new DataRoute();
  opened.push(made);
  return made;
}

const away = () => `unix:${ownSocketPath("data")}`;

test("route: the first reachable target is used and kept", async () => {
  const target = await listening();
  const one = route();
  expect(one.path).toBe("");
  const first = fetching([away(), target, "grpc:h:1"]);
  expect(await one.fetch(first.options)).toMatchObject({ version: 2, bytes: 1 });
  expect([one.path, first.sinks.at(-1)?.got, first.addresses]).toEqual(["unix", [5], []]);
  const again = fetching(["grpc:h:1", target]);
  await one.fetch(again.options);
  expect([one.path, again.addresses]).toEqual(["unix", []]);
  const without = fetching(["grpc:h:1"]);
  expect(await one.fetch(without.options)).toEqual({ version: 4, bytes: 1 });
  expect([one.path, without.addresses, without.sinks[0]?.got]).toEqual(["grpc", ["h:1"], [9, -1]]);
});

test("route: a refusal is final, and an unreachable target is unavailable", async () => {
  const target = await listening(async () => {
    throw new AppError("invalid_value", "no");
  });
  const refused = fetching([target, "grpc:h:1"]);
  await expect(route().fetch(refused.options)).rejects.toMatchObject({ code: "invalid_value" });
  expect(refused.addresses).toEqual([]);
  for (const targets of [[], [away()]]) {
    const none = route().fetch(fetching(targets).options);
    await expect(none).rejects.toMatchObject({ code: "unavailable" });
  }
});

test("route: a stream that ends before its first chunk falls back to the next target", async () => {
  const target = await listening();
  const { options, sinks } = fetching(["grpc:h:1", target], { overGrpc: async function* () {} });
  const one = route();
  expect(await one.fetch(options)).toMatchObject({ version: 2 });
  expect([one.path, sinks.map(({ got }) => got)]).toEqual(["unix", [[], [5]]]);
});

test("route: a connection that was closed meanwhile is opened again", async () => {
  const target = await listening();
  const one = route();
  await one.fetch(fetching([target]).options);
  one.close();
  const { options, sinks } = fetching([target]);
  await one.fetch(options);
  expect(sinks[0]?.got).toEqual([5]);
});

test("route: nothing is tried once the caller has given up", async () => {
  const reason = new AppError("cancelled", "enough");
  const { options, sinks } = fetching(["grpc:h:1"], { signal: AbortSignal.abort(reason) });
  await expect(route().fetch(options)).rejects.toBe(reason);
  expect(sinks).toEqual([]);
});
