// holds: sec-http2

import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type ClientHttp2Session, connect, constants } from "node:http2";
import { connect as connectTcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { connect as connectTls } from "node:tls";
import { promisify } from "node:util";
import { eventually } from "@heddle/base/testing/eventually";
import { createOwnCertificate } from "@heddle/pki/certificate-authority";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

const CHAT = "/api/v1/chat/completions";
const hello = { model: "FamilyA-1-2B", messages: [{ role: "user", content: "one two three" }] };

/** A stream that fills every buffer. */
const LARGE = { stream: true, logprobs: true, top_logprobs: 20 };
const HEAD = () => ({
  authorization: `Bearer ${server.adminKey}`,
  "content-type": "application/json",
});

let folder: string;
let server: TestMaster;
let certificateFile: string;
let certificate: string;
let sessions: ClientHttp2Session[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "heddle-http2-"));
  const pair = await createOwnCertificate(["localhost"]);
  certificate = pair.certificate;
  certificateFile = join(folder, "tls.crt");
  const keyFile = join(folder, "tls.key");
  writeFileSync(certificateFile, certificate);
  writeFileSync(keyFile, pair.privateKey);
  server = await startTestMaster({
    httpTls: { certificateFile, keyFile },
    maxBodyBytes: 100_000,
    fixedTimes: { headersTimeoutMs: 2_000, requestTimeoutMs: 2_000 },
  });
});
afterEach(() => {
  for (const session of sessions) session.destroy();
  sessions = [];
  server.dispatch.script = {};
});
afterAll(async () => {
  await server.master.close();
  rmSync(folder, { recursive: true });
});

const port = (): number => Number(new URL(server.url).port);

async function open(): Promise<ClientHttp2Session> {
  const session = connect(`https://localhost:${port()}`, { ca: certificate });
  session.on("error", () => undefined);
  sessions.push(session);
  await once(session, "connect");
  return session;
}

function begin(
  session: ClientHttp2Session,
  method: string,
  path: string,
  more: Record<string, string | string[]> = {},
) {
  const stream = session.request(
    {
      ":method": method,
      ":path": path,
      ...HEAD(),
      ...more,
    },
    { endStream: false },
  );
  stream.on("error", () => undefined);
  const answer = once(stream, "response").then(async ([headers]) => ({
    status: Number(headers[":status"]),
    headers: headers as Record<string, string>,
    body: await text(stream),
  }));
  answer.catch(() => undefined);
  return { stream, answer };
}

function send(session: ClientHttp2Session, method: string, path: string, body?: string | Buffer) {
  const { stream, answer } = begin(session, method, path);
  stream.end(body);
  return answer;
}

it("http/2: calls, streams and refusals share one connection", async () => {
  const session = await open();
  const answers = await Promise.all([
    send(session, "GET", "/readyz"),
    send(session, "POST", CHAT, JSON.stringify({ ...hello, max_tokens: 3 })),
    send(session, "POST", CHAT, JSON.stringify({ ...hello, stream: true })),
    send(session, "POST", CHAT, JSON.stringify({ ...hello, user: "x".repeat(100_000) })),
    send(session, "GET", "/api/v1/no-such-route"),
  ]);
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 413, 404]);
  expect(answers[1]?.body).toContain("one two three");
  expect(answers[1]?.headers["x-request-id"]).toMatch(/^req_/);
  expect(answers[2]?.body).toMatch(/"content":"one".*\[DONE\]/s);
});

it("http/2: two keys in one request are refused", async () => {
  const session = await open();
  const keys = [`Bearer ${server.adminKey}`, "Bearer other"];
  const { stream, answer } = begin(session, "GET", "/api/v1/jobs", { "x-api-key": keys });
  stream.end();
  expect((await answer).status).toBe(401);
});

// holds: sec-one-caller
it.each(["--http2", "--http1.1"])(
  "keys: a call with two is refused, by %s",
  async (version) => {
    const curl = promisify(execFile);
    const ask = async (...headers: string[]) => {
      const at = `https://localhost:${port()}/api/v1/jobs`;
      const form = "%{stderr}%{http_version} %{http_code}";
      const flags = ["-s", version, "--cacert", certificateFile, "-w", form, at];
      return (await curl("curl", [...flags, ...headers.flatMap((each) => ["-H", each])])).stderr;
    };
    const spoken = version === "--http2" ? "2" : "1.1";
    const { adminKey: own } = server;
    const other = (await server.addKey({ scopes: ["jobs:read"] })).text;
    const refused = [
      [`Authorization: Bearer ${own}`, `Authorization: Bearer ${other}`],
      [`Authorization: Bearer ${other}`, `Authorization: Bearer ${own}`],
      [`Authorization: Bearer ${own}`, `authorization: Bearer ${own}`],
      [`Authorization: Bearer ${own}, Bearer ${other}`],
      [`Authorization: Bearer ${own},${other}`],
      [`Authorization: Bearer ${own} ${other}`],
      [`X-Api-Key: ${own}`, `X-Api-Key: ${other}`],
      [`X-Api-Key: ${own}, ${other}`],
      [`Authorization: Bearer ${own}`, `X-Api-Key: ${other}`],
      [`Authorization: Bearer x`, `X-Api-Key: ${own}`],
    ];
    for (const headers of refused) {
      expect(await ask(...headers), headers.join(" | ")).toBe(`${spoken} 401`);
    }
    for (const headers of [
      [`Authorization: Bearer ${other}`],
      [`X-Api-Key: ${other}`],
      [`Authorization: Bearer ${own}`, `X-Api-Key: ${own}`],
    ]) {
      expect(await ask(...headers), headers.join(" | ")).toBe(`${spoken} 200`);
    }
  },
  300_000,
);

it("http/2: a client that takes nothing holds a stream back, not the others", async () => {
  const generated = server.dispatch.generatedTokens;
  const session = await open();
  const stream = session.request({ ...HEAD(), ":method": "POST", ":path": CHAT });
  stream.on("error", () => undefined);
  stream.end(JSON.stringify({ ...hello, ...LARGE, max_tokens: 10_000 }));
  await once(stream, "response");
  let last = -1;
  let unchanged = 0;
  await eventually(() => {
    const now = server.dispatch.generatedTokens;
    unchanged = last === now && now > generated ? unchanged + 1 : 0;
    last = now;
    return unchanged === 20;
  });
  expect(server.dispatch.running).toBe(1);
  expect(server.dispatch.generatedTokens - generated).toBeLessThan(10_000);
  expect((await send(session, "GET", "/readyz")).status).toBe(200);
  const before = server.dispatch.cancelled;
  stream.close(constants.NGHTTP2_CANCEL);
  await eventually(() => server.dispatch.cancelled === before + 1);
  expect((await send(session, "GET", "/readyz")).status).toBe(200);
});

it("http/2: a client that takes nothing for long is cut", async () => {
  const files = { certificateFile, keyFile: join(folder, "tls.key") };
  const strict = await startTestMaster({ httpTls: files, fixedTimes: { streamStallMs: 100 } });
  const at = strict.url.replace("127.0.0.1", "localhost");
  const session = connect(at, { ca: certificate }).on("error", () => undefined);
  sessions.push(session);
  const head = { ...HEAD(), authorization: `Bearer ${strict.adminKey}` };
  const stream = session.request({ ...head, ":method": "POST", ":path": CHAT });
  stream.on("error", () => undefined);
  stream.end(JSON.stringify({ ...hello, ...LARGE, max_tokens: 100_000 }));
  await eventually(() => strict.rows.at(-1)?.errorCode === "request_timeout");
  expect(strict.dispatch.running).toBe(0);
  await strict.master.close();
});

it("http/2: a call ends with its connection", async () => {
  server.dispatch.script = { tokenDelayMs: 20 };
  const session = await open();
  const { stream } = begin(session, "POST", CHAT);
  stream.end(JSON.stringify({ ...hello, max_tokens: 5_000, stream: true }));
  await eventually(() => server.dispatch.running === 1);
  const before = server.dispatch.cancelled;
  session.destroy();
  await eventually(() => server.dispatch.cancelled === before + 1);
  expect(server.dispatch.running).toBe(0);
});

it("http/2: a body that does not arrive is 408, and the connection stays", async () => {
  const session = await open();
  const { stream, answer } = begin(session, "POST", CHAT);
  stream.write("{");
  const { status, body } = await answer;
  expect({ status, body }).toMatchObject({
    status: 408,
    body: expect.stringContaining("too long"),
  });
  expect((await send(session, "GET", "/readyz")).status).toBe(200);
});

it("http/2: a refused body is not waited for", async () => {
  const session = await open();
  const { stream, answer } = begin(session, "POST", "/api/v1/no-such-route");
  stream.write("{");
  expect((await answer).status).toBe(404);
  await eventually(() => stream.closed);
  expect(stream.rstCode).toBe(constants.NGHTTP2_NO_ERROR);
});

it("http/2: a connection without a request is closed", async () => {
  const session = await open();
  await once(session, "close");
});

it("http/2: a connection has 128 streams at a time, and 64 KiB of headers each", async () => {
  const session = await open();
  await eventually(() => session.remoteSettings.maxConcurrentStreams === 128);
  const { stream } = begin(session, "GET", "/readyz", { "x-long": "a".repeat(70_000) });
  await eventually(() => stream.closed);
  expect(stream.rstCode).not.toBe(constants.NGHTTP2_NO_ERROR);
  expect((await send(await open(), "GET", "/readyz")).status).toBe(200);
});

it("http/2: a tunnel is refused", async () => {
  const session = await open();
  const stream = session.request({ ":method": "CONNECT", ":authority": "example.com:443" });
  stream.on("error", () => undefined);
  const [headers] = await once(stream, "response");
  expect(headers[":status"]).toBe(405);
});

it("http/2: a file of several MiB is stored", async () => {
  const session = await open();
  const edge = "edge-of-parts";
  const head = `--${edge}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--${edge}\r\ncontent-disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n`;
  const line = `${JSON.stringify({ text: "y".repeat(1_000) })}\n`;
  const type = { "content-type": `multipart/form-data; boundary=${edge}` };
  const { stream, answer } = begin(session, "POST", "/api/v1/files", type);
  stream.end(`${head}${line.repeat(3_000)}\r\n--${edge}--\r\n`);
  const { status, body } = await answer;
  expect(status).toBe(200);
  const { id } = JSON.parse(body) as { id: string };
  const read = await send(session, "GET", `/api/v1/files/${id}/content`);
  expect(read.body).toBe(line.repeat(3_000));
});

it("http/2: curl speaks it, and HTTP/1.1 where it is asked to", async () => {
  const curl = promisify(execFile);
  const ask = async (version: string) => {
    const at = `https://localhost:${port()}/readyz`;
    const flags = ["-s", version, "--cacert", certificateFile, "-w", "%{http_version}", at];
    return (await curl("curl", flags)).stdout;
  };
  expect(await ask("--http2")).toBe("ok\n2");
  expect(await ask("--http1.1")).toBe("ok\n1.1");
});

it("http/2: a client that offers no protocol is served over HTTP/1.1", async () => {
  const socket = connectTls({ port: port(), host: "localhost", ca: certificate });
  await once(socket, "secureConnect");
  socket.end("GET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
  expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 OK/);
});

it("http/2: without TLS it is not spoken", async () => {
  const socket = connectTcp(port(), "localhost").on("error", () => undefined);
  socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  await once(socket, "close");
});

it("http/2: the master ends while a connection is open", async () => {
  const files = { certificateFile, keyFile: join(folder, "tls.key") };
  const other = await startTestMaster({ httpTls: files, drainMs: 100 });
  const session = connect(other.url.replace("127.0.0.1", "localhost"), { ca: certificate });
  session.on("error", () => undefined);
  await once(session, "connect");
  const stream = session.request({ ":method": "POST", ":path": CHAT }, { endStream: false });
  stream.on("error", () => undefined);
  stream.write("{");
  const closed = once(session, "close");
  await other.master.close();
  await closed;
});
