// holds: events-sinks

import {
  appendFileSync,
  globSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { freePort } from "@heddle/base/testing/free-ports";
import { startS3Server } from "@heddle/base/testing/s3-server";
import { createOwnCertificate } from "@heddle/pki/certificate-authority";
import { expect, onTestFinished, test } from "vitest";
import { NatsProcess } from "../../../../test/sinks/nats-process.ts";
import { FileSink } from "./file-sink.ts";
import type { LogSink } from "./log-sink.ts";
import { openSinks } from "./open-sinks.ts";

const ORIGIN = "heddle/events/c1";

function temporary(): string {
  const folder = mkdtempSync(join(tmpdir(), "heddle-sinks-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

const batch = (first: number, count: number) => ({
  first,
  texts: Array.from({ length: count }, (_, at) =>
    JSON.stringify({ sequence: String(first + at), text: "\u6f22".repeat(20) }),
  ),
});

const sequencesOf = (text: string) =>
  text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => Number((JSON.parse(line) as { sequence: string }).sequence));

test("file sink: continues after its last whole line", async () => {
  const directory = join(temporary(), "a", "b");
  const opened = () => openSinks([`file://${directory}`], ORIGIN)[0]!;
  const first = opened();
  expect(await first.next?.()).toBeUndefined();
  await first.write(batch(7, 5));
  expect(await first.next?.()).toBe(12);
  await first.close();
  const path = join(directory, "events-c1.jsonl");
  const whole = statSync(path).size;
  appendFileSync(path, '{"sequence":"12","te');
  const again = opened();
  expect(await again.next?.()).toBe(12);
  expect(statSync(path).size).toBe(whole);
  await again.write(batch(12, 3));
  await again.close();
  expect(sequencesOf(readFileSync(path, "utf8"))).toEqual([7, 8, 9, 10, 11, 12, 13, 14]);
  appendFileSync(path, "no event\n");
  await expect(opened().next?.()).rejects.toThrow("the file's last line is no event");
});

test("file sink: full files are put aside, and the oldest go", async () => {
  const directory = temporary();
  const options = { directory, cluster: "c1", fileBytes: 500, keptFiles: 2 };
  let sink = new FileSink(options);
  for (let at = 0; at < 60; at += 10) {
    expect(await sink.next()).toBe(at === 0 ? undefined : at);
    await sink.write(batch(at, 10));
    if (at === 30) {
      await sink.close();
      sink = new FileSink(options);
    }
  }
  await sink.close();
  const names = globSync("*", { cwd: directory }).sort();
  expect(names).toEqual([
    "events-c1.0000000000000039.jsonl",
    "events-c1.0000000000000049.jsonl",
    "events-c1.jsonl",
  ]);
  const kept = names.flatMap((name) => sequencesOf(readFileSync(join(directory, name), "utf8")));
  expect(kept).toEqual(Array.from({ length: 30 }, (_, at) => 30 + at));
  rmSync(join(directory, "events-c1.jsonl"));
  const last = new FileSink(options);
  expect(await last.next()).toBe(50);
  await last.close();
});

test("S3 sink: a batch is one object, named by its first event", async () => {
  const server = await startS3Server();
  onTestFinished(() => server.close());
  const [sink] = openSinks(["s3://heddle/audit"], ORIGIN, server.env);
  await sink!.write(batch(0, 3));
  await sink!.write(batch(3, 1));
  await sink!.write(batch(3, 4));
  const stored = globSync("audit/c1/*_object", { cwd: server.directory }).sort();
  const texts = stored.map((name) => readFileSync(join(server.directory, name), "utf8"));
  expect(stored.map((name) => name.slice(9, 31))).toEqual([
    "0000000000000000.jsonl",
    "0000000000000003.jsonl",
  ]);
  expect(texts.flatMap(sequencesOf)).toEqual([0, 1, 2, 3, 4, 5, 6]);
  const denied = { ...server.env, AWS_SECRET_ACCESS_KEY: "wrong" };
  const refused = openSinks(["s3://heddle/audit"], ORIGIN, denied)[0]!;
  await expect(refused.write(batch(0, 1))).rejects.toThrow("refused");
});

test("sinks: what is no sink is refused with the form", () => {
  const forms = ["x", "http://a/b", "file://host/x", "file:///", "nats://h:1", "nats://h/a b"];
  for (const url of [...forms, "nats://h/a.>", "nats:///s"]) {
    expect(() => openSinks([url], ORIGIN), url).toThrow(/--event-sinks takes file:.*not /);
  }
  expect(() => openSinks(["nats://u:p@h/s"], ORIGIN)).toThrow("NATS_PASSWORD");
  expect(() => openSinks(["s3://heddle/x"], ORIGIN, {})).toThrow(
    "--event-sinks s3://heddle/x needs",
  );
  expect(() => openSinks(["file:///a", "file:///a"], ORIGIN)).toThrow("names a sink twice");
  const many = Array.from({ length: 17 }, (_, at) => `file:///${at}`);
  expect(() => openSinks(many, ORIGIN)).toThrow("at most 16");
});

const noNats = NatsProcess.problem();
if (noNats) process.stdout.write(`skipped: events to a server of NATS: ${noNats}\n`);
const natsTest = test.skipIf(noNats !== undefined);

natsTest(
  "NATS sink: a stream has each event once, also after repeats and a restart",
  {
    timeout: 60_000,
  },
  async () => {
    const nats = new NatsProcess(await freePort(), temporary());
    onTestFinished(() => nats.end("SIGKILL"));
    await nats.start();
    const env = { NATS_USER: "u", NATS_PASSWORD: "p" };
    const url = `nats://127.0.0.1:${nats.port}/heddle.events`;
    const sink = openSinks([url], ORIGIN, env)[0] as LogSink;
    onTestFinished(() => sink.close());
    await expect(sink.write(batch(0, 2))).rejects.toThrow(
      "no JetStream stream takes heddle.events",
    );
    const stream = { name: "AUDIT", subjects: ["heddle.events"], storage: "file" };
    expect(await nats.ask("STREAM.CREATE.AUDIT", stream)).not.toHaveProperty("error");
    await sink.write(batch(0, 1_000));
    await sink.write(batch(990, 20));
    await nats.end("SIGKILL");
    await expect(sink.write(batch(1_010, 5))).rejects.toThrow(/127\.0\.0\.1|gone/);
    await nats.start();
    await sink.write(batch(1_005, 10));
    const { state } = await nats.ask("STREAM.INFO.AUDIT", {});
    expect(state).toMatchObject({ messages: 1_015 });
    const found: number[] = [];
    for (const seq of [1, 500, 1_015]) {
      const reply = await nats.ask("STREAM.MSG.GET.AUDIT", { seq });
      const { data } = reply["message"] as { data: string };
      found.push(...sequencesOf(Buffer.from(data, "base64").toString()));
    }
    expect(found).toEqual([0, 499, 1_014]);
    const denied = openSinks([url], ORIGIN, { ...env, NATS_PASSWORD: "x" })[0] as LogSink;
    await expect(denied.write(batch(0, 1))).rejects.toThrow(/Authorization/i);
  },
);

natsTest(
  "NATS sink: TLS is asked for, and the server's certificate is verified",
  {
    timeout: 60_000,
  },
  async () => {
    const folder = temporary();
    const own = await createOwnCertificate(["localhost"]);
    const files = { tlscert: own.certificate, tlskey: own.privateKey };
    const flags = Object.entries(files).flatMap(([flag, pem]) => {
      writeFileSync(join(folder, flag), pem);
      return [`--${flag}`, join(folder, flag)];
    });
    const trusted = getCACertificates("default");
    onTestFinished(() => setDefaultCACertificates(trusted));
    setDefaultCACertificates([...trusted, own.certificate]);
    const port = await freePort();
    const nats = new NatsProcess(port, join(folder, "stream"), ["--tls", ...flags]);
    onTestFinished(() => nats.end("SIGKILL"));
    await nats.start();
    await nats.ask("STREAM.CREATE.AUDIT", { name: "AUDIT", subjects: ["heddle.events"] });
    const env = { NATS_USER: "u", NATS_PASSWORD: "p" };
    const sinkAt = (url: string) => {
      const sink = openSinks([url], ORIGIN, env)[0] as LogSink;
      onTestFinished(() => sink.close());
      return sink;
    };
    await sinkAt(`tls://localhost:${port}/heddle.events`).write(batch(0, 3));
    expect(await nats.stored("AUDIT")).toEqual(batch(0, 3).texts);
    // The certificate has another name.
    const otherName = sinkAt(`tls://127.0.0.1:${port}/heddle.events`).write(batch(3, 1));
    await expect(otherName).rejects.toThrow(/does not match certificate/);
    setDefaultCACertificates(trusted);
    for (const scheme of ["tls", "nats"]) {
      const distrusted = sinkAt(`${scheme}://localhost:${port}/heddle.events`).write(batch(3, 1));
      await expect(distrusted).rejects.toThrow(/self-signed certificate/);
    }
  },
);
