// holds: ps-paths

import { fileURLToPath } from "node:url";
import type { ServerWritableStream } from "@grpc/grpc-js";
import { loadSync, type MessageTypeDefinition } from "@grpc/proto-loader";
import type {
  ParameterChunk,
  ParameterChunk__Output,
} from "@heddle/contracts/generated/heddle/v1/ParameterChunk";
import type { TakePart, TakePart__Output } from "@heddle/contracts/generated/heddle/v1/TakePart";
import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeChunk, encodeChunk } from "./chunk-codec.ts";
import { Peer } from "./peer.ts";
import { method, partSourceService } from "./proto.ts";
import { bindServer, closeServer } from "./server.ts";

/** The general serializer, with the options of proto.ts. */
const general = loadSync(
  fileURLToPath(new URL("../../../proto/parameters.proto", import.meta.url)),
  { keepCase: false, longs: Number, enums: String, defaults: true, oneofs: true },
)["heddle.v1.ParameterChunk"] as MessageTypeDefinition<object, object>;

const number = fc.oneof(fc.nat(300), fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }));
const chunk = fc.record({
  version: number,
  offset: number,
  totalBytes: number,
  data: fc.uint8Array({ maxLength: 2_000, size: "max" }).map((bytes) => Buffer.from(bytes)),
});

test("chunk codec: compatible with the general serializer in both directions", () => {
  fc.assert(
    fc.property(chunk, (given) => {
      expect(general.deserialize(Buffer.from(encodeChunk(given)))).toEqual(given);
      expect(decodeChunk(general.serialize(given))).toEqual(given);
      expect(decodeChunk(Buffer.from(encodeChunk(given)))).toEqual(given);
    }),
    { numRuns: 50 },
  );
});

test("chunk codec: unknown fields and cut messages go to the general deserializer", () => {
  const whole = Buffer.from(encodeChunk({ version: 3, data: Buffer.alloc(9, 1), totalBytes: 9 }));
  expect(decodeChunk(Buffer.concat([whole, Buffer.from([0x28, 1])]))).toBeUndefined();
  expect(decodeChunk(whole.subarray(0, -1))).toBeUndefined();
  expect(decodeChunk(Buffer.alloc(0))).toEqual(general.deserialize(Buffer.alloc(0)));
});

test("chunk codec: encodes memory that threads share", () => {
  const data = new Uint8Array(new SharedArrayBuffer(70_000)).fill(7);
  const bytes = Buffer.from(encodeChunk({ version: 1, offset: 2, data, totalBytes: 70_000 }));
  expect(decodeChunk(bytes)?.data.equals(Buffer.alloc(70_000, 7))).toBe(true);
});

test("chunk codec: several chunks of one turn arrive intact from one buffer", async () => {
  const own = {
    clusterToken: "the token of this test",
    node: { role: "parameter-server", name: "p" },
  } as const;
  const { server, address } = await bindServer({ host: "127.0.0.1", port: 0, credentials: own });
  const sizes = [9, 200_000, 0, 40_000, 3];
  server.addService(partSourceService, {
    take: (call: ServerWritableStream<TakePart__Output, ParameterChunk>) => {
      for (const [i, size] of sizes.entries()) {
        call.write({ version: i, data: Buffer.alloc(size, i + 1), totalBytes: size });
      }
      call.end();
    },
  });
  const peer = new Peer(address, own, "parameter-server");
  const take = method<TakePart, TakePart__Output, ParameterChunk, ParameterChunk__Output>(
    partSourceService,
    "Take",
  );
  const came: ParameterChunk__Output[] = [];
  const { signal } = new AbortController();
  for await (const chunk of peer.serverStream(take, { clock: 1 }, signal)) came.push(chunk);
  expect(came.map(({ version }) => version)).toEqual(sizes.map((_, i) => i));
  for (const [i, size] of sizes.entries()) {
    expect(came[i]?.data.equals(Buffer.alloc(size, i + 1))).toBe(true);
  }
  peer.close();
  await closeServer(server, 0);
});
