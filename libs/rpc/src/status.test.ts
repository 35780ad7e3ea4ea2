import { Metadata, status } from "@grpc/grpc-js";
import { AppError, ERROR_TABLE, type ErrorCode } from "@heddle/base/errors";
import { expect, test } from "vitest";
import { fromStatus, toStatus } from "./status.ts";

function arrived(sent: ReturnType<typeof toStatus>): Error {
  return Object.assign(new Error(`${sent.code}: ${sent.details}`), sent);
}

test("status: every error's code, message and retry time survive a call", () => {
  for (const code of Object.keys(ERROR_TABLE) as ErrorCode[]) {
    const sent = toStatus(new AppError(code, `about ${code}`, { retryAfterMs: 1_500 }));
    expect(sent.code).toBe(ERROR_TABLE[code].grpc);
    const error = fromStatus(arrived(sent), "peer:1");
    expect(error).toMatchObject({ code, message: `about ${code}`, retryAfterMs: 1_500 });
  }
});

test("status: one without an error code gets the code that fits, and the peer's name", () => {
  const plain = (code: status) =>
    fromStatus(arrived({ code, details: "d", metadata: new Metadata() }), "peer:1");
  expect(plain(status.UNAVAILABLE).code).toBe("unavailable");
  expect(plain(status.DEADLINE_EXCEEDED).code).toBe("deadline_exceeded");
  expect(plain(status.UNAUTHENTICATED).code).toBe("invalid_api_key");
  expect(plain(status.INTERNAL).code).toBe("server_error");
  expect(plain(status.UNAVAILABLE).message).toContain("peer:1");
});

test("status: an unexpected error becomes server_error and keeps its cause", () => {
  const cause = new TypeError("boom");
  expect(toStatus(cause).code).toBe(status.INTERNAL);
  expect(fromStatus(cause, "peer:1")).toMatchObject({ code: "server_error", cause });
});
