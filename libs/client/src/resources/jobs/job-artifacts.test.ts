// holds: artifacts-store

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { Heddle } from "../../heddle.ts";

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

const servers: (() => void)[] = [];
afterEach(() => {
  for (const close of servers.splice(0)) close();
});

/**
 * A server that gives the n-th answer to the n-th request, and the last one to all later requests.
 */
async function serve(...answers: [Answer, ...Answer[]]) {
  const ranges: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    const answer = answers[Math.min(ranges.length, answers.length - 1)]!;
    ranges.push(request.headers.range);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  servers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { ranges, heddle: new Heddle({ endpoint: `http://127.0.0.1:${port}` }) };
}

const BODY = "0123456789";
const head = (from: number, etag = '"a"') => ({ etag, "content-length": String(10 - from) });

/** The whole content, or the requested range. */
const whole: Answer = ({ headers }, response) => {
  const from = Number(/^bytes=(\d+)-$/.exec(headers.range ?? "")?.[1] ?? 0);
  response.writeHead(headers.range ? 206 : 200, head(from)).end(BODY.slice(from));
};
/** This many bytes, then a broken connection. */
const torn =
  (bytes: number, etag?: string): Answer =>
  (_request, response) => {
    response.writeHead(200, head(0, etag));
    response.write(BODY.slice(0, bytes), () => response.destroy());
  };

async function download(heddle: Heddle): Promise<string> {
  let text = "";
  for await (const chunk of heddle.jobs.artifact("job_1", "a/b")) {
    text += new TextDecoder().decode(chunk);
  }
  return text;
}

test("artifact download: resumes at the byte where it broke off", async () => {
  const { ranges, heddle } = await serve(torn(4), whole);
  expect(await download(heddle)).toBe(BODY);
  expect(ranges).toEqual([undefined, "bytes=4-"]);
});

test("artifact download: bytes that are sent again are not returned twice", async () => {
  const ignoresRange: Answer = (_request, response) =>
    void response.writeHead(200, head(0)).end(BODY);
  const { heddle } = await serve(torn(7), ignoresRange);
  expect(await download(heddle)).toBe(BODY);
});

test("artifact download: a file that changed meanwhile is not mixed with the first", async () => {
  const { heddle } = await serve(torn(4), torn(9, '"b"'));
  await expect(download(heddle)).rejects.toMatchObject({ code: "conflict" });
});

test("artifact download: a refusal is an error as in other calls", async () => {
  const gone: Answer = (_request, response) =>
    void response.writeHead(404).end(JSON.stringify({ code: "not_found", detail: "no such" }));
  const { heddle } = await serve(gone);
  await expect(download(heddle)).rejects.toMatchObject({ status: 404, message: "no such" });
});
