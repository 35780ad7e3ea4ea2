import { AppError } from "@heddle/base/errors";
import { S3Client } from "@heddle/storage/s3/s3-client";
import { readS3Settings } from "@heddle/storage/s3/s3-settings";
import { FileSink } from "./file-sink.ts";
import type { LogSink } from "./log-sink.ts";
import { NatsSink } from "./nats-sink.ts";
import { S3Sink } from "./s3-sink.ts";

const MAX_SINKS = 16;
const NATS_PORT = 4_222;

/** Makes the sinks of `--event-sinks`. Throws an `invalid_value` that names what is wrong. */
export function openSinks(
  urls: readonly string[],
  origin: string,
  env: NodeJS.ProcessEnv = process.env,
): readonly LogSink[] {
  if (urls.length > MAX_SINKS) throw refused(`takes at most ${MAX_SINKS} sinks`);
  if (new Set(urls).size < urls.length) throw refused("names a sink twice");
  return urls.map((url) => openSink(url, origin, env));
}

function openSink(text: string, origin: string, env: NodeJS.ProcessEnv): LogSink {
  const cluster = origin.slice(origin.lastIndexOf("/") + 1);
  if (text.startsWith("s3://")) {
    return new S3Sink(text, new S3Client(readS3Settings(text, env, "--event-sinks")), cluster);
  }
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === "file:" && url.host === "" && url.pathname.length > 1) {
    return new FileSink({ directory: decodeURIComponent(url.pathname), cluster });
  }
  const subject = url?.pathname.slice(1) ?? "";
  const isNats = url?.protocol === "nats:" || url?.protocol === "tls:";
  if (!url || !isNats || url.hostname === "" || !/^[\w-]+(\.[\w-]+)*$/.test(subject)) {
    throw refused(
      `takes file:///DIRECTORY, s3://BUCKET/PREFIX or nats://HOST:PORT/SUBJECT, not ${text}`,
    );
  }
  if (url.username || url.password) {
    throw refused("has a password in a URL: set NATS_USER and NATS_PASSWORD, or NATS_TOKEN");
  }
  const server = {
    host: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port === "" ? NATS_PORT : Number(url.port),
    tls: url.protocol === "tls:",
    user: env["NATS_USER"],
    password: env["NATS_PASSWORD"],
    token: env["NATS_TOKEN"],
  };
  return new NatsSink({ server, subject, origin });
}

function refused(what: string): AppError {
  return new AppError("invalid_value", `--event-sinks ${what}`);
}
