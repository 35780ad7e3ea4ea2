import { AppError } from "@heddle/base/errors";
import type { ObjectBytes } from "@heddle/engines/weights/fetch-source";
import { PART_BYTES, S3Client } from "@heddle/storage/s3/s3-client";
import { readS3Settings } from "@heddle/storage/s3/s3-settings";

const SCHEME = "s3://";

/** What of the network this worker may read for others. */
export interface PullAccess {
  readonly allowedHosts: readonly string[];
  /** Undefined where no bucket is allowed. */
  readonly readObject: ObjectBytes | undefined;
}

/**
 * From the entries of `--weights-hosts`: hosts, and buckets as `s3://BUCKET/PREFIX`, which are read
 * with the worker's own key. Throws an AppError that names a missing setting.
 */
export function pullAccess(entries: readonly string[], env = process.env): PullAccess {
  const allowedHosts = entries.filter((each) => !each.startsWith(SCHEME));
  const buckets = entries.filter((each) => each.startsWith(SCHEME));
  if (buckets.length === 0) return { allowedHosts, readObject: undefined };
  const clients = buckets.map((text) => {
    const place = `${text.replace(/\/+$/, "")}/`;
    return { place, client: new S3Client(readS3Settings(text, env, "--weights-hosts")) };
  });
  return {
    allowedHosts,
    async *readObject({ bucket, key }, offset, signal, bytes = Number.POSITIVE_INFINITY) {
      const text = `${SCHEME}${bucket}/${key}`;
      const found = clients.find(({ place }) => text.startsWith(place));
      if (!found) {
        const message = `the bucket ${bucket} is not on the allow-list with that key; add ${SCHEME}${bucket} to --weights-hosts of the workers if you trust it`;
        throw new AppError("permission_denied", message);
      }
      const within = text.slice(found.place.length);
      const end = offset + bytes;
      for (let at = offset; at < end; ) {
        signal.throwIfAborted();
        const wanted = Math.min(PART_BYTES, end - at);
        const part = await found.client.get(within, at, wanted);
        if (!part) throw new AppError("not_found", `there is no object ${text}`);
        if (part.byteLength > 0) yield part;
        if (part.byteLength < wanted) return;
        at += part.byteLength;
      }
    },
  };
}
