import { createHash } from "node:crypto";
import { retry } from "@heddle/base/async/retry";
import { AppError } from "@heddle/base/errors";
import { AwsV4Signer } from "aws4fetch";
import type { S3Settings } from "./s3-settings.ts";

/** The most bytes of an object in one request, in both directions. */
export const PART_BYTES = 8 * 2 ** 20;
/** The most parts of one object. */
const MAX_PARTS = 10_000;
const MAX_TRIES = 5;
const TIMEOUT_MS = 60_000;
const RETRY = { baseMs: 200, maxMs: 5_000 };
/** Pages of a listing, of a thousand keys each. */
const MAX_PAGES = 1_000;

interface Call {
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The result of a listing: objects, and with a delimiter the folders. */
export interface S3Listing {
  readonly objects: readonly { readonly key: string; readonly atMs: number }[];
  readonly folders: readonly string[];
}

/** Reads `bytes` bytes from an offset; fewer only at the end. */
type ReadPart = (offset: number, bytes: number) => Promise<Uint8Array>;

/** The S3 calls that copies need. Keys are relative to the prefix. */
export class S3Client {
  readonly #settings: S3Settings;

  constructor(settings: S3Settings) {
    this.#settings = settings;
  }

  /** One object of `bytes` bytes, in parts where it is large; at most one part is in memory. */
  async put(key: string, bytes: number, read: ReadPart): Promise<void> {
    if (bytes <= PART_BYTES) {
      await this.#call("PUT", key, { body: await read(0, bytes) });
      return;
    }
    const opened = await this.#text("POST", key, { query: { uploads: "" } });
    const uploadId = only(opened, "UploadId");
    try {
      await this.#putParts(key, uploadId, bytes, read);
    } catch (error) {
      await this.#call("DELETE", key, { query: { uploadId } }).catch(() => undefined);
      throw error;
    }
  }

  async #putParts(key: string, uploadId: string, bytes: number, read: ReadPart): Promise<void> {
    const size = Math.max(PART_BYTES, Math.ceil(bytes / MAX_PARTS));
    const parts: string[] = [];
    for (let at = 0; at < bytes; at += size) {
      const number = parts.length + 1;
      const body = await read(at, Math.min(size, bytes - at));
      const query = { partNumber: String(number), uploadId };
      const { headers } = await this.#call("PUT", key, { query, body });
      const etag = escaped(headers.get("etag") ?? "");
      parts.push(`<Part><PartNumber>${number}</PartNumber><ETag>${etag}</ETag></Part>`);
    }
    const body = `<CompleteMultipartUpload>${parts.join("")}</CompleteMultipartUpload>`;
    const text = await this.#text("POST", key, { query: { uploadId }, body });
    // The response has status 200 before the outcome is known.
    if (text.includes("<Error>")) throw this.#refused("POST", key, 500, text);
  }

  /** A part of an object, empty from its end on; undefined where there is no object. */
  async get(key: string, offset: number, bytes: number): Promise<Buffer | undefined> {
    if (bytes === 0) return Buffer.alloc(0);
    const range = `bytes=${offset}-${offset + bytes - 1}`;
    try {
      const reply = await this.#call("GET", key, { headers: { range } });
      return reply.body;
    } catch (error) {
      if (error instanceof AppError && error.code === "not_found") return undefined;
      throw error;
    }
  }

  async remove(key: string): Promise<void> {
    await this.#call("DELETE", key, {});
  }

  async list(below: string, delimiter = ""): Promise<S3Listing> {
    const { prefix } = this.#settings;
    const objects: { key: string; atMs: number }[] = [];
    const folders: string[] = [];
    let token = "";
    for (let page = 0; page < MAX_PAGES; page++) {
      const query = {
        "list-type": "2",
        prefix: `${prefix}${below}`,
        ...(delimiter && { delimiter }),
        ...(token && { "continuation-token": token }),
      };
      const text = await this.#text("GET", undefined, { query });
      for (const each of all(text, "Contents")) {
        const key = only(each, "Key").slice(prefix.length);
        objects.push({ key, atMs: Date.parse(only(each, "LastModified")) });
      }
      for (const each of all(text, "CommonPrefixes")) {
        folders.push(only(each, "Prefix").slice(prefix.length));
      }
      if (!/<IsTruncated>true</.test(text)) break;
      token = only(text, "NextContinuationToken");
    }
    return { objects, folders };
  }

  async #text(method: string, key: string | undefined, call: Call): Promise<string> {
    return (await this.#call(method, key, call)).body.toString("utf8");
  }

  /** Retried where the store may answer later. */
  #call(method: string, key: string | undefined, call: Call) {
    return retry(() => this.#once(method, key, call), {
      backoff: RETRY,
      maxTries: MAX_TRIES,
      isPassing: (error) => error instanceof AppError && error.code === "unavailable",
    });
  }

  async #once(method: string, key: string | undefined, { query = {}, body, headers = {} }: Call) {
    const { url, prefix, ...credentials } = this.#settings;
    const target = new URL(key === undefined ? url : `${url}/${prefix}${key}`);
    for (const [name, value] of Object.entries(query)) target.searchParams.set(name, value);
    const digest = createHash("sha256")
      .update(body ?? "")
      .digest("hex");
    const signer = new AwsV4Signer({
      method,
      url: target.href,
      service: "s3",
      region: credentials.region,
      accessKeyId: credentials.accessKeyId,
      secretAccessKey: credentials.secretAccessKey,
      ...(credentials.sessionToken && { sessionToken: credentials.sessionToken }),
      // The store verifies the content with this digest.
      headers: { ...headers, "x-amz-content-sha256": digest },
    });
    const signed = await signer.sign();
    let status: number;
    let content: Buffer;
    let replied: Headers;
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      const sent = body === undefined ? {} : { body: Buffer.from(body) };
      const reply = await fetch(signed.url, { method, headers: signed.headers, signal, ...sent });
      status = reply.status;
      replied = reply.headers;
      content = Buffer.from(await reply.arrayBuffer());
    } catch (cause) {
      const { message, cause: inner } = cause as Error;
      const why =
        inner instanceof Error ? inner.message || (inner as { code?: string }).code : message;
      throw new AppError("unavailable", `the store ${url} did not answer: ${why}`, { cause });
    }
    // The range begins at the object's end.
    if (status === 416) return { body: Buffer.alloc(0), headers: replied };
    if (status >= 200 && status < 300) return { body: content, headers: replied };
    throw this.#refused(method, key, status, content.toString("utf8"));
  }

  #refused(method: string, key: string | undefined, status: number, text: string): AppError {
    const { url, prefix } = this.#settings;
    const code = all(text, "Code")[0] ?? "";
    const said = `${status} ${code} ${all(text, "Message")[0] ?? ""}`.trim().slice(0, 300);
    const what = `${method} ${url}/${prefix}${key ?? ""}: ${said}`;
    if (status === 404) {
      const advice = code === "NoSuchBucket" ? ". Make the bucket first" : "";
      return new AppError(advice ? "invalid_value" : "not_found", `${what}${advice}`);
    }
    if (status === 401 || status === 403) {
      const advice = "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what the key may do";
      return new AppError("permission_denied", `the object store refused ${what}. ${advice}`);
    }
    const mayPass = status === 429 || status >= 500;
    return new AppError(
      mayPass ? "unavailable" : "server_error",
      `the object store refused ${what}`,
    );
  }
}

/** The contents of all elements of that name. */
function all(xml: string, name: string): string[] {
  const found = xml.matchAll(new RegExp(`<${name}>([\\s\\S]*?)</${name}>`, "g"));
  return [...found].map(([, content = ""]) => unescaped(content));
}

function only(xml: string, name: string): string {
  const [first] = all(xml, name);
  if (first !== undefined) return first;
  throw new AppError("server_error", `the store answered without ${name}: ${xml.slice(0, 300)}`);
}

const ENTITIES = {
  "&lt;": "<",
  "&gt;": ">",
  "&quot;": '"',
  "&apos;": "'",
  "&#34;": '"',
  "&amp;": "&",
};

function unescaped(text: string): string {
  return text.replace(/&(?:lt|gt|quot|apos|#34|amp);/g, (each) => {
    return ENTITIES[each as keyof typeof ENTITIES];
  });
}

function escaped(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
}
