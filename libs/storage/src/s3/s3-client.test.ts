// holds: artifacts-s3

import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { type S3Server, startS3Server } from "@heddle/base/testing/s3-server";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { PART_BYTES, S3Client } from "./s3-client.ts";
import { readS3Settings } from "./s3-settings.ts";

const bytesOf = (text: string) => async (offset: number, bytes: number) =>
  Buffer.from(text).subarray(offset, offset + bytes);

describe("an S3 store", () => {
  let server: S3Server;
  let store: S3Client;
  beforeAll(async () => {
    server = await startS3Server();
    store = new S3Client(readS3Settings("s3://heddle/below", server.env, "--copies"));
  });
  afterAll(() => server.close());

  it("has what was put, in ranges, until it is removed", async () => {
    await store.put("a/b", 10, bytesOf("0123456789"));
    expect(String(await store.get("a/b", 0, 100))).toBe("0123456789");
    expect(String(await store.get("a/b", 3, 4))).toBe("3456");
    expect(String(await store.get("a/b", 8, 0))).toBe("");
    expect(String(await store.get("a/b", 10, 5))).toBe("");
    expect(await store.get("a/c", 0, 1)).toBeUndefined();
    await store.remove("a/b");
    expect(await store.get("a/b", 0, 1)).toBeUndefined();
  });

  it("lists objects and folders below a key, without the prefix", async () => {
    for (const key of ["l/x & y", "l/deep/one", "l/deep/two", "other"]) {
      await store.put(key, 1, bytesOf("x"));
    }
    const whole = await store.list("l/");
    expect(whole.objects.map(({ key }) => key).sort()).toEqual([
      "l/deep/one",
      "l/deep/two",
      "l/x & y",
    ]);
    expect(whole.folders).toEqual([]);
    const { atMs } = whole.objects[0] ?? { atMs: 0 };
    expect(Math.abs(atMs - Date.now())).toBeLessThan(600_000);
    const level = await store.list("l/", "/");
    expect([level.objects.map(({ key }) => key), level.folders]).toEqual([
      ["l/x & y"],
      ["l/deep/"],
    ]);
    expect(await store.list("nothing")).toEqual({ objects: [], folders: [] });
  });

  it("takes a large object in parts, one at a time", async () => {
    const bytes = 2 * PART_BYTES + 5;
    const asked: number[][] = [];
    const read = async (offset: number, size: number) => {
      asked.push([offset, size]);
      return Buffer.alloc(size, asked.length);
    };
    await store.put("large", bytes, read);
    expect(asked).toEqual([
      [0, PART_BYTES],
      [PART_BYTES, PART_BYTES],
      [2 * PART_BYTES, 5],
    ]);
    expect(await store.get("large", PART_BYTES - 1, 2)).toEqual(Buffer.from([1, 2]));
    expect(await store.get("large", bytes - 5, 9)).toEqual(Buffer.alloc(5, 3));
    asked.length = 0;
    await store.put("whole", PART_BYTES, read);
    expect(asked).toEqual([[0, PART_BYTES]]);
  });

  it("refuses a wrong key and a bucket that is not there, and says what to do", async () => {
    const wrongKey = { ...server.env, AWS_SECRET_ACCESS_KEY: "x" };
    const other = new S3Client(readS3Settings("s3://heddle", wrongKey, "--copies"));
    await expect(other.remove("a")).rejects.toMatchObject({
      code: "permission_denied",
      message: expect.stringMatching(/refused DELETE .*\/heddle\/a: 403 .*Check AWS_ACCESS_KEY_ID/),
    });
    const nowhere = new S3Client(readS3Settings("s3://nowhere", server.env, "--copies"));
    await expect(nowhere.put("a", 1, bytesOf("x"))).rejects.toMatchObject({
      code: "invalid_value",
      message: expect.stringMatching(/404 NoSuchBucket .*Make the bucket first/),
    });
  });
});

describe("an S3 store with answers of its own", () => {
  interface Asked {
    readonly what: string;
    readonly headers: IncomingHttpHeaders;
    readonly body: Buffer;
  }
  type Answer = { readonly status?: number; readonly text?: string; readonly etag?: string };
  let answers: (asked: Asked) => Answer | undefined;
  let asked: Asked[];
  const server = createServer((request, response) => {
    void buffer(request).then((body) => {
      const each = { what: `${request.method} ${request.url}`, headers: request.headers, body };
      asked.push(each);
      const answer = answers(each);
      if (!answer) return;
      const { status = 200, text = "", etag } = answer;
      response.writeHead(status, etag === undefined ? {} : { etag }).end(text);
    });
  });
  let client: S3Client;
  beforeAll(async () => {
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const key = { AWS_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "s", AWS_SESSION_TOKEN: "token" };
    client = new S3Client(
      readS3Settings("s3://own/p", { ...key, AWS_ENDPOINT_URL: url }, "--copies"),
    );
  });
  afterAll(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  afterEach(() => vi.restoreAllMocks());

  /** Answers in order; the last one again and again. */
  function script(...given: Answer[]): void {
    asked = [];
    answers = () => given[Math.min(asked.length, given.length) - 1];
  }
  const said = (code: string, message = "") =>
    `<Error><Code>${code}</Code><Message>${message}</Message></Error>`;

  it("is asked again while it may answer later, at most five times", async () => {
    script({ status: 503 }, { status: 429 }, { status: 500 }, { status: 599 }, {});
    await client.remove("a");
    expect(asked).toHaveLength(5);
    script({ status: 500, text: said("SlowDown", "wait &amp; see &lt;&gt;&quot;&#34;&apos;") });
    await expect(client.remove("a")).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringMatching(
        /refused DELETE .*\/own\/p\/a: 500 SlowDown wait & see <>""'$/,
      ),
    });
    expect(asked).toHaveLength(5);
  });

  it.each([
    [400, "server_error"],
    [301, "server_error"],
    [401, "permission_denied"],
    [403, "permission_denied"],
    [404, "not_found"],
  ])("is asked once where it answers %i", async (status, code) => {
    script({ status, text: said("Other", "x".repeat(500)) });
    await expect(client.remove("a")).rejects.toMatchObject({ code });
    expect(asked).toHaveLength(1);
    const error = await client.remove("a").catch(({ message }) => message);
    expect(error.length).toBeLessThan(500);
  });

  it("gets signed calls with the content's digest and the session", async () => {
    script({});
    await client.put("a", 3, bytesOf("abc"));
    const [{ what, headers, body } = { what: "", headers: {}, body: Buffer.alloc(0) }] = asked;
    expect([what, String(body)]).toEqual(["PUT /own/p/a", "abc"]);
    expect(headers).toMatchObject({
      "x-amz-content-sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
      "x-amz-security-token": "token",
      authorization: expect.stringMatching(/Credential=id\/\d{8}\/us-east-1\/s3\/aws4_request/),
    });
    await client.get("a", 5, 10).catch(() => undefined);
    expect(asked[1]?.headers["range"]).toBe("bytes=5-14");
  });

  it("lists page by page, and refuses a page that does not say what is next", async () => {
    const page = (key: string, next: string) =>
      `<Contents><Key>p/${key}</Key><LastModified>2026-11-28T00:00:00Z</LastModified></Contents>${next}`;
    const more = "<IsTruncated>true</IsTruncated>";
    const next = `${more}<NextContinuationToken>t&amp;1</NextContinuationToken>`;
    script({ text: page("a", next) }, { text: page("b", "<IsTruncated>false</IsTruncated>") });
    const atMs = Date.parse("2026-11-28T00:00:00Z");
    expect((await client.list("")).objects).toEqual([
      { key: "a", atMs },
      { key: "b", atMs },
    ]);
    expect(asked.map(({ what }) => what)).toEqual([
      "GET /own?list-type=2&prefix=p%2F",
      "GET /own?list-type=2&prefix=p%2F&continuation-token=t%261",
    ]);
    script({ text: page("a", more) });
    const reason = /the store answered without NextContinuationToken/;
    await expect(client.list("")).rejects.toThrow(reason);
    // A store that never ends is left.
    script({ text: page("a", next) });
    expect((await client.list("")).objects).toHaveLength(1_000);
  });

  it("a large object that fails is ended at the store, with the first reason", async () => {
    const begun = { text: "<UploadId>u1</UploadId>" };
    const bytes = PART_BYTES + 1;
    const read = async (_: number, size: number) => Buffer.alloc(size);
    script(begun, { status: 403 }, { status: 500 });
    await expect(client.put("a", bytes, read)).rejects.toMatchObject({ code: "permission_denied" });
    expect(asked.map(({ what }) => what).slice(0, 3)).toEqual([
      "POST /own/p/a?uploads=",
      "PUT /own/p/a?partNumber=1&uploadId=u1",
      "DELETE /own/p/a?uploadId=u1",
    ]);
    const parts = [{ etag: '"1"' }, { etag: '"<&2>"' }];
    script(begun, ...parts, { text: said("InternalError") }, {});
    await expect(client.put("a", bytes, read)).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringMatching(/500 InternalError$/),
    });
    expect(asked.map(({ what }) => what.split(" ")[0])).toEqual([
      "POST",
      "PUT",
      "PUT",
      "POST",
      "DELETE",
    ]);
    expect(String(asked[3]?.body)).toBe(
      "<CompleteMultipartUpload>" +
        '<Part><PartNumber>1</PartNumber><ETag>"1"</ETag></Part>' +
        '<Part><PartNumber>2</PartNumber><ETag>"&lt;&amp;2>"</ETag></Part>' +
        "</CompleteMultipartUpload>",
    );
    script({});
    await expect(client.put("a", bytes, read)).rejects.toThrow(/answered without UploadId/);
  });

  it("is given up after a minute without an answer, and with the reason", async () => {
    const { timeout } = AbortSignal;
    // The clock runs faster.
    const given = vi.spyOn(AbortSignal, "timeout").mockImplementation(() => timeout(5));
    asked = [];
    answers = () => undefined;
    await expect(client.remove("a")).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringMatching(/\/own did not answer: .*timeout/),
    });
    expect(given).toHaveBeenCalledWith(60_000);
    const closed = {
      ...process.env,
      AWS_ENDPOINT_URL: "http://127.0.0.1:1",
      AWS_ACCESS_KEY_ID: "i",
    };
    const settings = readS3Settings(
      "s3://own",
      { ...closed, AWS_SECRET_ACCESS_KEY: "s" },
      "--copies",
    );
    await expect(new S3Client(settings).remove("a")).rejects.toThrow(/did not answer: \w+/);
  });
});
