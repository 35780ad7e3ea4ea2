import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import type { WeightsSource } from "@heddle/contracts/weights-source";
import { guardedGet, type RequestContext, readText, statusFault } from "./guarded-request.ts";
import { PermanentFault } from "./source-fault.ts";

type OciSource = Extract<WeightsSource, { kind: "oci" }>;

/** Where a layer of an OCI artifact is, and what it is promised to be. */
export interface OciBlob {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  /** Lower-case hexadecimal. */
  readonly sha256: string;
  readonly sizeBytes: number;
}

const MANIFEST_TYPES = [
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.v2+json",
];

interface Layer {
  readonly digest: string;
  readonly size: number;
  readonly annotations?: Readonly<Record<string, string>>;
}

/**
 * Finds the layer that holds `file` in an artifact (OCI Distribution Specification 1.1): the one
 * whose title annotation is the file's name, or the only one. A registry that answers with a
 * bearer challenge is asked for an anonymous token.
 */
export async function locateOciBlob(
  source: OciSource,
  file: string,
  context: RequestContext,
): Promise<OciBlob> {
  const base = new URL(
    `${isLoopbackRegistry(source.registry) ? "http" : "https"}://${source.registry}/v2/${source.repository}/`,
  );
  const url = new URL(`manifests/${source.reference}`, base);
  const { text, headers } = await getManifest(url, source, context);
  checkManifestDigest(text, source.reference);
  const layer = pickLayer(text, file);
  const sha256 = /^sha256:([\da-f]{64})$/.exec(layer.digest)?.[1];
  if (!sha256) throw new PermanentFault(`the layer's digest ${layer.digest} is not a SHA-256`);
  if (!Number.isSafeInteger(layer.size) || layer.size < 0) {
    throw new PermanentFault(
      `the layer's size ${JSON.stringify(layer.size)} is not a number of bytes`,
    );
  }
  return { url: new URL(`blobs/${layer.digest}`, base), headers, sha256, sizeBytes: layer.size };
}

async function getManifest(url: URL, source: OciSource, context: RequestContext) {
  const accept = MANIFEST_TYPES.join(", ");
  const first = await guardedGet(url, { accept }, context);
  if (first.statusCode === 200) return { text: await readText(first), headers: {} };
  const challenge = first.headers["www-authenticate"];
  const denied = first.statusCode === 401 && challenge;
  if (!denied) throw refusalOf(first, url);
  first.destroy();
  const headers = { authorization: `Bearer ${await getToken(challenge, source, context)}` };
  const second = await guardedGet(url, { accept, ...headers }, context);
  if (second.statusCode !== 200) throw refusalOf(second, url);
  return { text: await readText(second), headers };
}

function refusalOf(response: IncomingMessage, url: URL) {
  response.destroy();
  return statusFault(response, url);
}

async function getToken(
  challenge: string,
  source: OciSource,
  context: RequestContext,
): Promise<string> {
  const fields = Object.fromEntries(
    [...challenge.matchAll(/(\w+)="([^"]*)"/g)].map(([, key, value]) => [key, value]),
  );
  if (!/^bearer /i.test(challenge) || !URL.canParse(fields["realm"] ?? "")) {
    throw new PermanentFault("the registry wants a login of a kind that is not supported");
  }
  const realm = new URL(fields["realm"] ?? "");
  if (fields["service"]) realm.searchParams.set("service", fields["service"]);
  realm.searchParams.set("scope", fields["scope"] ?? `repository:${source.repository}:pull`);
  const response = await guardedGet(realm, {}, context);
  if (response.statusCode !== 200) throw refusalOf(response, realm);
  const answer = parseJson(await readText(response)) as { token?: string; access_token?: string };
  const token = answer.token ?? answer.access_token;
  if (!token) throw new PermanentFault(`${realm.host} gave no token`);
  return token;
}

function checkManifestDigest(text: string, reference: string): void {
  if (!reference.startsWith("sha256:")) return;
  const digest = `sha256:${createHash("sha256").update(text).digest("hex")}`;
  if (digest !== reference) throw new PermanentFault(`the manifest has the digest ${digest}`);
}

function pickLayer(text: string, file: string): Layer {
  const { layers } = parseJson(text) as { layers?: readonly Layer[] };
  if (!Array.isArray(layers)) {
    throw new PermanentFault(
      "the reference is not an artifact with layers (is it an image index?)",
    );
  }
  const list: readonly Layer[] = layers;
  const titled = list.find(
    (layer) => layer.annotations?.["org.opencontainers.image.title"] === file,
  );
  const layer = titled ?? (list.length === 1 ? list[0] : undefined);
  if (!layer) throw new PermanentFault(`none of its ${list.length} layers is titled ${file}`);
  return layer;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new PermanentFault("the registry's answer is not JSON", { cause });
  }
}

/** Registries on this machine speak plain HTTP, as docker and oras take it. */
function isLoopbackRegistry(registry: string): boolean {
  const host = registry.replace(/:\d+$/, "").replace(/^\[|\]$/g, "");
  return host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));
}
