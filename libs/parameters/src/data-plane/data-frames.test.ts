import { AppError } from "@heddle/base/errors";
import { expect, test } from "vitest";
import {
  dataHelloFrame,
  errorFrame,
  HEAD_BYTES,
  headFrame,
  parseHead,
  receivedError,
  requestFrame,
  tokenOfHello,
} from "./data-frames.ts";

test("frames: a hello has its token; one of another protocol has none", () => {
  const token = new Uint8Array(32).map((_, i) => i);
  const hello = dataHelloFrame(token);
  expect(hello).toHaveLength(40);
  expect([...(tokenOfHello(hello) ?? [])]).toEqual([...token]);
  hello[6] = 0x32;
  expect(tokenOfHello(hello)).toBeUndefined();
});

test("frames: a request is its length in bytes and its JSON", () => {
  const frame = requestFrame({ a: "ü" });
  expect([frame.readUInt32LE(), frame.subarray(4).toString()]).toEqual([10, '{"a":"ü"}']);
});

test("frames: a head has version and bytes, of 4 GiB and more as well", () => {
  const head = headFrame({ version: 2 ** 40, bytes: 2 ** 33 + 1 });
  expect(head).toHaveLength(HEAD_BYTES);
  expect(parseHead(head)).toEqual({ failed: false, version: 2 ** 40, bytes: 2 ** 33 + 1 });
});

test("frames: a head with an invalid or too large number of bytes is refused", () => {
  for (const bytes of [-1, 1.5, Number.NaN, 2 ** 60]) {
    expect(() => parseHead(headFrame({ version: 0, bytes }))).toThrow(/broke its protocol/);
  }
  const error = (bytes: number) => {
    const head = headFrame({ version: 0, bytes });
    head.writeUInt32LE(1);
    return head;
  };
  expect(parseHead(error(8192)).failed).toBe(true);
  expect(() => parseHead(error(8193))).toThrow(/broke its protocol/);
});

test("frames: an error has its code, its text and the peer's name", () => {
  const frame = errorFrame(new AppError("not_found", "none"));
  expect(parseHead(frame)).toMatchObject({ failed: true, bytes: frame.length - HEAD_BYTES });
  const received = receivedError(frame.subarray(HEAD_BYTES), "unix:/x");
  expect(received).toMatchObject({ code: "not_found", message: "none", node: "unix:/x" });
});

test("frames: a long error is cut to the bound", () => {
  const frame = errorFrame(new AppError("conflict", "\u0001".repeat(5_000)));
  expect(() => parseHead(frame)).not.toThrow();
  expect(receivedError(frame.subarray(HEAD_BYTES), "").message).toHaveLength(1_300);
});

test("frames: an unknown error becomes one of the protocol", () => {
  for (const text of ["{", "null", "3"]) {
    expect(receivedError(Buffer.from(text), "p")).toMatchObject({
      code: "server_error",
      message: expect.stringMatching(/run one version/),
    });
  }
  const odd = Buffer.from('{"code":"nonsense","message":"m"}');
  expect(receivedError(odd, "p")).toMatchObject({ code: "server_error", message: "m" });
});
