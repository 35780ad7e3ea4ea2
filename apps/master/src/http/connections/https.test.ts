// holds: sec-tls-http

import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, get, request } from "node:https";
import { type AddressInfo, connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { eventually } from "@heddle/base/testing/eventually";
import { createLogger } from "@heddle/observability/logger";
import { createOwnCertificate } from "@heddle/pki/certificate-authority";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";
import { CertificateWatch } from "./certificate-watch.ts";
import { readServerCertificate } from "./server-certificate.ts";

let folder: string;
let server: TestMaster;
let certificate: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "heddle-https-"));
  const files = await writePair("first");
  certificate = files.certificate;
  server = await startTestMaster({
    httpTls: files,
    maxBodyBytes: 100_000,
    fixedTimes: { headersTimeoutMs: 400, requestTimeoutMs: 800 },
  });
});
afterAll(async () => {
  await server.master.close();
  rmSync(folder, { recursive: true });
});
beforeEach(() => {
  server.dispatch.script = {};
});

async function writePair(name: string) {
  const pair = await createOwnCertificate(["localhost"]);
  const files = {
    certificateFile: join(folder, `${name}.crt`),
    keyFile: join(folder, `${name}.key`),
  };
  writeFileSync(files.certificateFile, pair.certificate);
  writeFileSync(files.keyFile, pair.privateKey);
  return { ...files, ...pair };
}

const port = (): number => Number(new URL(server.url).port);
const trust = () => ({ host: "127.0.0.1", port: port(), servername: "localhost", ca: certificate });

interface Answer {
  readonly status: number | undefined;
  readonly body: string;
}

async function send(method: string, path: string, body?: string): Promise<Answer> {
  const headers = {
    authorization: `Bearer ${server.adminKey}`,
    "content-type": "application/json",
  };
  const sent = request({ ...trust(), method, path, headers, agent: false });
  sent.end(body);
  const [reply] = await once(sent, "response");
  return { status: reply.statusCode, body: await text(reply) };
}

async function open(): Promise<TLSSocket> {
  const socket = connectTls(trust());
  socket.on("error", () => undefined);
  await once(socket, "secureConnect");
  return socket;
}

/** All that the server sends until it ends the connection. */
async function restOf(socket: Socket): Promise<string> {
  let received = "";
  socket.on("data", (bytes: Buffer) => {
    received += bytes.toString();
  });
  await once(socket, "close");
  return received;
}

const hello = { model: "FamilyA-1-2B", messages: [{ role: "user", content: "one two three" }] };
const CHAT = "/api/v1/chat/completions";

describe("HTTPS: calls", () => {
  it("are answered to clients that check the certificate, streams too", async () => {
    expect(server.url).toMatch(/^https:/);
    expect((await send("GET", "/readyz")).status).toBe(200);
    const plain = await send("POST", CHAT, JSON.stringify({ ...hello, max_tokens: 3 }));
    expect(plain).toMatchObject({ status: 200, body: expect.stringContaining("one two three") });
    const streamed = await send("POST", CHAT, JSON.stringify({ ...hello, stream: true }));
    expect(streamed.body).toMatch(/"content":"one".*\[DONE\]/s);
  });

  it("without TLS are not answered, and others continue", async () => {
    const socket = connect(port(), "127.0.0.1").on("error", () => undefined);
    socket.write("GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n");
    expect(await restOf(socket)).not.toContain("ok");
    expect((await send("GET", "/readyz")).status).toBe(200);
  });

  it("with a body over the limit are 413, broken ones 400", async () => {
    const large = JSON.stringify({ ...hello, user: "x".repeat(100_000) });
    expect(await send("POST", CHAT, large)).toMatchObject({ status: 413 });
    const socket = await open();
    socket.write("no HTTP\r\n\r\n");
    expect(await restOf(socket)).toMatch(/^HTTP\/1\.1 400 .*not valid HTTP/s);
  });

  it("are freed when their client disconnects", async () => {
    server.dispatch.script = { tokenDelayMs: 20 };
    const socket = await open();
    const body = JSON.stringify({ ...hello, max_tokens: 5_000, stream: true });
    socket.write(
      `POST ${CHAT} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${server.adminKey}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    await eventually(() => server.dispatch.running === 1);
    const before = server.dispatch.cancelled;
    socket.end();
    await eventually(() => server.dispatch.cancelled === before + 1);
    expect(server.dispatch.running).toBe(0);
  });
});

describe("HTTPS: slow clients", () => {
  it("without a handshake are cut off", async () => {
    const socket = connect(port(), "127.0.0.1").on("error", () => undefined);
    await once(socket, "connect");
    expect(await restOf(socket)).not.toContain("HTTP");
  });

  it("without complete headers or a body are cut off with 408", async () => {
    const head = await open();
    head.write("POST /x HTTP/1.1\r\nhost: a\r\n");
    expect(await restOf(head)).toMatch(/^HTTP\/1\.1 408/);
    const body = await open();
    body.write(
      `POST ${CHAT} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${server.adminKey}\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{`,
    );
    expect(await restOf(body)).toMatch(/^HTTP\/1\.1 408/);
  });
});

describe("HTTPS: the certificate", () => {
  it("is the one that the files hold now; a wrong pair changes nothing", async () => {
    const files = await writePair("changing");
    const { cert, key } = readServerCertificate(files);
    const own = createServer({ cert, key }, (_, response) => response.end("ok")).listen(0);
    const log = createLogger({ service: "test", level: "silent" });
    const watch = new CertificateWatch({ server: own, files, log, readEveryMs: 20 });
    const shows = async (ca: string): Promise<boolean> => {
      const { port: at } = own.address() as AddressInfo;
      const call = get({ host: "127.0.0.1", port: at, servername: "localhost", ca, agent: false });
      const [reply] = await once(call, "response").catch(() => []);
      reply?.resume();
      return reply?.statusCode === 200;
    };
    expect(await shows(files.certificate)).toBe(true);

    const next = await createOwnCertificate(["localhost"]);
    writeFileSync(files.certificateFile, next.certificate);
    await eventually(() => watch.counts.refused === 1);
    expect(await shows(files.certificate)).toBe(true);
    expect(watch.counts.changed).toBe(0);

    writeFileSync(files.keyFile, next.privateKey);
    await eventually(() => watch.counts.changed === 1);
    expect(await shows(next.certificate)).toBe(true);
    expect(await shows(files.certificate)).toBe(false);
    expect(watch.untilMs).toBeGreaterThan(Date.now() + 300 * 86_400_000);
    watch.onApplicationShutdown();
    own.close();
  });

  it("is refused with the file and what is wrong with it", async () => {
    const [one, other] = [await writePair("one"), await writePair("other")];
    const pair = (certificateFile: string, keyFile: string) => () =>
      readServerCertificate({ certificateFile, keyFile });
    expect(pair(one.certificateFile, other.keyFile)).toThrow(
      /--http-key-file .*other\.key is not the key of the first certificate in --http-cert-file/,
    );
    expect(pair(one.keyFile, one.keyFile)).toThrow(/one\.key holds no certificate as PEM/);
    expect(pair(one.certificateFile, one.certificateFile)).toThrow(/one\.crt holds no private key/);
    expect(pair(join(folder, "none"), one.keyFile)).toThrow(/--http-cert-file .*does not exist/);
    expect(pair(folder, one.keyFile)).toThrow(/is a directory/);
    const locked = join(folder, "locked");
    writeFileSync(locked, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nx\n");
    expect(pair(one.certificateFile, locked)).toThrow(/locked is encrypted with a passphrase/);
  });
});
