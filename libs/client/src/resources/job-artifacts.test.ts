// holds: artifacts-store

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { Heddle } from "../heddle.ts";

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

const servers: (() => void)[] = [];
afterEach(() => {
  for (const close of servers.splice(0)) close();
});

/** A server whose n-th request gets the n-th answer; the last one stands for all that follow. */
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

/** The whole of it, or what the range asks for. */
const whole: Answer = ({ headers }, response) => {
  const from = Number(/^bytes=(\d+)-$/.exec(headers.range ?? "")?.[1] ?? 0);
  response.writeHead(headers.range ? 206 : 200, head(from)).end(BODY.slice(from));
};
/** So many bytes, and then nothing. */
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

test("a download that breaks off goes on at the byte where it was", async () => {
  const { ranges, heddle } = await serve(torn(4), whole);
  expect(await download(heddle)).toBe(BODY);
  expect(ranges).toEqual([undefined, "bytes=4-"]);
});

test("what is sent again from its beginning is not told twice", async () => {
  const ignoresRange: Answer = (_request, response) =>
    void response.writeHead(200, head(0)).end(BODY);
  const { heddle } = await serve(torn(7), ignoresRange);
  expect(await download(heddle)).toBe(BODY);
});

test("a file that is another one by then is not mixed with the first", async () => {
  const { heddle } = await serve(torn(4), torn(9, '"b"'));
  await expect(download(heddle)).rejects.toMatchObject({ code: "conflict" });
});

test("a refusal is told as any other", async () => {
  const gone: Answer = (_request, response) =>
    void response.writeHead(404).end(JSON.stringify({ code: "not_found", detail: "no such" }));
  const { heddle } = await serve(gone);
  await expect(download(heddle)).rejects.toMatchObject({ status: 404, message: "no such" });
});
